"""The ZConfig section <fsyncclient>.

It extends ZEO's <clientstorage>, and takes what is written in a <zeoclient>.
"""

from ZODB.config import BaseConfig

from .storage import FsyncClient as Storage
from .storage import checked_blob_cache_fill
from .storage import checked_read_channels


def blob_cache_fill(value):
    return checked_blob_cache_fill(value.lower())


def read_channels(value):
    return checked_read_channels(int(value))


class FsyncClient(BaseConfig):

    # Keys that are arguments of the same name.
    KEYS = ('storage', 'cache_size', 'client', 'var', 'wait', 'wait_timeout',
            'read_only', 'read_only_fallback', 'server_sync', 'client_label',
            'blob_dir', 'shared_blob_dir', 'blob_cache_size',
            'blob_cache_size_check', 'blob_cache_fill', 'read_channels')

    def open(self):
        config = self.config
        ssl, server_hostname = config.ssl or (None, None)
        return Storage(
            [server.address for server in config.server],
            name=config.name, cache=config.cache_path,
            ssl=ssl, ssl_server_hostname=server_hostname,
            **{key: getattr(config, key) for key in self.KEYS})
