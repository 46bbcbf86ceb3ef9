"""Stock's packer, without a storage: what should be kept.

What it does that loses data is mended here (docs/internals/pack.rst, "What is
kept").
"""

import os
import threading
import types
import typing

from ZODB.blob import is_blob_record
from ZODB.FileStorage import fspack
from ZODB.FileStorage.FileStorage import RedundantPackWarning
from ZODB.serialize import referencesf

#: Nothing was done, since nothing can be freed.
NOTHING = 'nothing'
#: Stock fails, and we need not.
GAVE_UP = 'gave up'
#: A reference leads nowhere.
MISSING = 'missing'


class Packed(typing.NamedTuple):
    content: bytes
    index: dict
    removed: list   # lines


class _Gc(fspack.GC):

    def findReachableFromFuture(self):
        before = set(self.reachable)
        super().findReachableFromFuture()
        todo = []
        for oid in set(self.reachable) - before:
            todo += self.findrefs(self.reachable[oid])
        while todo:
            oid = todo.pop()
            if oid not in self.reachable and oid in self.oid2curpos:
                self.reachable[oid] = self.oid2curpos[oid]
                todo += self.findrefs(self.reachable[oid])


def packed(path, blobs, stop, gc):
    """A Packed, or one of the words above."""
    file = types.SimpleNamespace(name=path)
    storage = types.SimpleNamespace(
        _file=file, blob_dir=blobs, getSize=lambda: os.path.getsize(path),
        _lock=threading.RLock(), _commit_lock=threading.Lock(),
        is_blob_record=is_blob_record)
    packer = fspack.FileStoragePacker(storage, referencesf, stop, gc)
    packer.gc.__class__ = _Gc
    try:
        if packer.pack() is None:
            return NOTHING
        with open(path + '.pack', 'rb') as file:
            content = file.read()
        with open(os.path.join(blobs, '.removed'), 'rb') as file:
            removed = file.read().split()
    except RedundantPackWarning:
        return NOTHING
    except (fspack.PackError, AssertionError, TypeError):
        # Pointers to what is not kept: it looks for it, or finds that the
        # transaction became longer.
        return GAVE_UP
    except KeyError:
        return MISSING
    finally:
        packer.close()
    return Packed(content, dict(packer.index.items()), removed)
