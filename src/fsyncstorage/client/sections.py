"""The ZConfig sections <fsyncclient> and <as-fsyncclient>.

The first extends ZEO's <clientstorage>, and takes the keys of a <zeoclient>.
The second is put around one of these two, where a recipe or another program
writes it.
"""

from typing import Any

from ZConfig.datatypes import stock_datatypes
from ZEO.zconfig import ClientStorageConfig
from ZODB.config import BaseConfig
from ZODB.config import ZEOClient

from ..errors import unknown_key
from . import options
from .opening import open_client
from .storage import MAY_BE_SILENT

# Values of server-timeout: a server is never given up, or after the time that
# holds where none is given.
OFF, AUTO = 'off', 'auto'
_seconds = stock_datatypes['time-interval']
_address = stock_datatypes['socket-connection-address']


def addresses(said: Any) -> list[Any]:
    """The addresses of one key: a path, or one or more HOST:PORT.  ZConfig
    reads several of these as one host, without a port or with the last one."""
    if isinstance(said, str):
        return [said]
    host, port = said
    if port is not None and not any(map(str.isspace, host)):
        return [said]
    if 0 <= host.find(']') < host.find('['):
        host = f'[{host}]'  # brackets of the first and of the last address
    parts = (host if port is None else f'{host}:{port}').split()
    found = [_address(part).address for part in parts]
    if any(isinstance(each, str) or each[1] is None for each in found):
        raise ValueError(f'server is HOST:PORT, several of them, or a path,'
                         f' not {" ".join(parts)!r}')
    return found


def server_timeout(value: str) -> Any:
    """Seconds, or OFF, because None means that the key is missing."""
    if value.lower() == AUTO:
        return MAY_BE_SILENT
    if value.lower() == OFF:
        return OFF
    return options.server_timeout(_seconds(value))


class FsyncClient(BaseConfig):

    # Keys that are arguments of the same name.
    KEYS = ('storage', 'cache_size', 'client', 'var', 'wait', 'wait_timeout',
            'read_only', 'read_only_fallback', 'server_sync', 'client_label',
            'blob_dir', 'shared_blob_dir', 'blob_cache_size',
            'blob_cache_size_check', 'blob_cache_fill', 'blob_cache_mode',
            'read_channels', 'local_reads', 'local_reads_socket',
            'local_blob_dir', 'server_timeout', 'server_kind')

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._sections = [config]

    def open(self) -> Any:
        ssl, server_hostname = self._said('ssl') or (None, None)
        said = {key: value for key in self.KEYS
                if (value := self._said(key)) is not None}
        if said.get('server_timeout') == OFF:
            said['server_timeout'] = None
        return open_client(
            [address for server in self._said('server')
             for address in addresses(server.address)],
            name=self._said('name'), cache=self._said('cache_path'),
            ssl=ssl, ssl_server_hostname=server_hostname, **said)

    def _said(self, key: str) -> Any:
        """The value of the first section that has this key; else None."""
        for section in self._sections:
            value = getattr(section, key, None)
            if value is not None:
                return value
        return None


# Keys of <fsyncclient> that are not in KEYS, also those without effect.
_OTHERS = ('server', 'name', 'cache-path', 'ssl', 'min-disconnect-poll',
           'max-disconnect-poll', 'drop-cache-rather-verify', 'username',
           'password', 'realm')


def key_name(value: str) -> str:
    """The name of a key; an error names the nearest one."""
    key = value.lower()
    known = *_OTHERS, *(each.replace('_', '-') for each in FsyncClient.KEYS)
    if key not in known:
        raise ValueError(unknown_key(value, known))
    return key


class AsFsyncClient(FsyncClient):
    """A section around ZEO's; its own keys come first."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        stock = config.stock
        if not isinstance(stock, (ZEOClient, ClientStorageConfig)):
            raise ValueError(
                '<as-fsyncclient> takes a <zeoclient> or a <clientstorage>,'
                f' not a <{stock.config.getSectionType()}>')
        self._sections.append(stock.config)
