"""A FileStorage for ZODB with tunable durability, its server and its client.

    FsyncStorage(path, ...)  opens a Data.fs: a drop-in for FileStorage
    FsyncClient(addr, ...)   a server's client: a drop-in for ClientStorage
    durability(policy, ...)  asks for the durability of one transaction
    AsyncFinish(...)         for programs that finish without waiting

An example:

    import fsyncstorage, ZODB
    db = ZODB.DB(fsyncstorage.FsyncStorage('Data.fs', blob_dir='blobs'))

In zope.conf and zeo.conf the sections are <fsyncstorage> (%import
fsyncstorage) and <fsyncclient> (%import fsyncstorage.client); for zodburi the
URIs are fsync:// and fsync-zeo:// (fsyncstorage.uris).  docs/api.rst has more,
and docs/internals how it is made.

What is named above is imported on first use.  So a client, or a process that
packs or reads through a file, starts without the rest.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from .client.storage import FsyncClient
    from .commit.asking import durability
    from .storage import AsyncFinish
    from .storage import FsyncStorage

    __version__: str

__all__ = ['AsyncFinish', 'FsyncClient', 'FsyncStorage', 'durability']

#: Name -> the module that has it.
_HOMES = {
    'AsyncFinish': 'storage',
    'FsyncClient': 'client.storage',
    'FsyncStorage': 'storage',
    'durability': 'commit.asking',
}


if not typing.TYPE_CHECKING:  # which would then take any name
    def __getattr__(name):
        if name == '__version__':
            from .version import own_version
            return own_version()
        if name not in _HOMES:
            raise AttributeError(
                f'module {__name__!r} has no attribute {name!r}')
        home = importlib.import_module(f'.{_HOMES[name]}', __name__)
        globals()[name] = getattr(home, name)
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
