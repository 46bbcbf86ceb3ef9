"""What can take part in `fsync-time blobs`, by name.

ZEO servers with a directory of blobs.  Each time that a client opens its
storage it has a blob cache of its own, which is empty; or it shares the
directory of the server.  A storage without a server is for one process alone.
"""

import dataclasses

from ..options import contestants
from ..servers import zeosites


def _served(name, /, ways=zeosites.CACHE, **more):
    return dataclasses.replace(zeosites.CONTESTANTS[name], ways=ways, **more)


def _direct(name, summary):
    return dataclasses.replace(
        contestants.CONTESTANTS[name], summary=f'{summary}, no server')


CONTESTANTS = {contestant.name: contestant for contestant in (
    _served('zeo'),
    _served(
        'zeo', zeosites.NO_CACHE, name='zeo:shared',
        summary='the same, clients share the directory of the server'),
    _served('fsync-client'),
    _served('fsync-client:zeo'),
    _direct('filestorage', 'FileStorage'),
    _direct('fsync:group-commit', 'FsyncStorage with durability group-commit'),
)}
