"""The section <quorum>: which node this is, and where its log is.

The keys of the section are checked when the configuration is read, so that an
error names the file and the line.  No server is contacted before a storage is
opened.
"""

import re
import socket
from typing import Any

from ZODB.FileStorage.FileStorage import FileStorageError

from ...commit.policies import duration
from ...commit.policies import number_of_bytes
from ..log.interface import Log
from ..roles.role import Setup
from .settings import Settings
from .settings import address
from .trouble import Refused

#: Seconds.
SHORTEST_LEASE, LONGEST_LEASE = 1.0, 60.0
LONGEST_PATIENCE = 3600.0
#: Bytes.
SMALLEST_LIMIT = 16 << 20

#: The most characters of a name.
LONGEST_NODE, LONGEST_LOG = 16, 64
_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]*')
#: Stands before the name of the log in all keys in etcd.
PREFIX = '/fsyncstorage/'


def node(value: str) -> str:
    return _named('node', value, LONGEST_NODE)


def log(value: str) -> str:
    return _named('log', value, LONGEST_LOG)


def _named(key: str, value: str, longest: int) -> str:
    if len(value) > longest or not _NAME.fullmatch(value):
        raise ValueError(
            f'{key} must be a name of 1 to {longest} letters, digits, ".",'
            f' "_" or "-", not {value!r}')
    return value


def lease(value: str) -> float:
    seconds = duration(value, 'lease')
    if not SHORTEST_LEASE <= seconds <= LONGEST_LEASE:
        raise ValueError(f'lease must be between 1s and 60s, not {value!r}')
    return seconds


def disk_patience(value: str) -> float:
    seconds = duration(value, 'disk-patience')
    if not SHORTEST_LEASE <= seconds <= LONGEST_PATIENCE:
        raise ValueError(
            f'disk-patience must be between 1s and 1h, not {value!r}')
    return seconds


def log_limit(value: str) -> int:
    size = number_of_bytes(value, 'log-limit')
    if size < SMALLEST_LIMIT:
        raise ValueError(
            f'log-limit must be at least 16MB, not {value!r}: a transaction'
            ' has to fit into the log')
    return size


def at_log_limit(value: str) -> bool:
    """Is a node that is behind left behind at the limit?"""
    found = {'wait': False, 'drop': True}.get(value.lower())
    if found is None:
        raise ValueError(f'at-log-limit must be wait or drop, not {value!r}')
    return found


def etcd(value: str) -> list[Any]:
    try:
        from . import engine  # noqa: F401  (it needs what the extra brings)
    except ModuleNotFoundError as error:
        raise ValueError(
            f'a log on etcd needs the package {error.name}:'
            " pip install 'fsyncstorage[quorum]'") from error
    try:
        return [address(each) for each in value.split()]
    except Refused as error:
        raise ValueError(f'etcd: {error}') from None


class Section:
    """The section, as ZConfig has read it."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self.node = config.node or _name_of_this_machine()
        self.log = config.log
        if (config.user is None) != (config.password_file is None):
            raise ValueError('"user" and "password-file" belong together')
        try:
            self._settings(password=config.user).check()
        except Refused as error:
            raise ValueError(f'in the section <quorum>: {error}') from None

    def _settings(self, password: str | None) -> Settings:
        config = self._config
        return Settings(
            config.etcd, PREFIX + config.log, ca=config.ca, cert=config.cert,
            key=config.key, user=config.user, password=password)

    def _password(self) -> str | None:
        """The file is read at each start, so that it may change."""
        path = self._config.password_file
        if path is None:
            return None
        try:
            with open(path, encoding='utf-8') as file:
                password = file.readline(1000).rstrip('\r\n')
        except (OSError, UnicodeError) as error:
            raise FileStorageError(
                f'password-file {path} cannot be read: {error}') from error
        if not password:
            raise FileStorageError(
                f'password-file {path}: there is no password in its first'
                ' line')
        return password

    def open_log(self) -> Log:
        from .engine import EtcdLog
        try:
            return EtcdLog(self._settings(self._password()))
        except Refused as error:
            raise FileStorageError(str(error)) from error

    def check_log(self, opened: Any, strict: bool = False) -> None:
        from .checks import check
        try:
            check(opened, self._config.log_limit, strict)
        except Refused as error:
            raise FileStorageError(str(error)) from error

    @property
    def setup(self) -> Setup:
        config = self._config
        return Setup(self.node, config.lease, self.open_log, self.check_log,
                     config.disk_patience, config.log_limit,
                     config.at_log_limit)


def _name_of_this_machine() -> str:
    name = socket.gethostname().partition('.')[0]
    if name == 'localhost':
        raise ValueError(
            'this machine is called localhost, as others are: give the key'
            ' "node" of <quorum>')
    try:
        return node(name)
    except ValueError as error:
        raise ValueError(
            f'the name of this machine does not do as that of a node: {error}.'
            ' Give the key "node" of <quorum>') from None
