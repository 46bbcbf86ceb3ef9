"""What is in a data file, and in directories of blobs.

The file is read on from where it was read before, as long as it is the same
one.
"""

import filecmp
import io
import os
import pickle

from ZODB.FileStorage.FileStorage import FileIterator
from ZODB.utils import p64

AT_ONCE = 1 << 20


class Contents:
    """Of one file: the last tid and the last bytes of each object."""

    def __init__(self, path):
        self._path = path
        self._file = None
        self.objects = {}
        self._last = None

    def read(self):
        file = os.stat(self._path).st_ino
        if file != self._file:
            self._file, self.objects, self._last = file, {}, None
        start = None if self._last is None else p64(
            int.from_bytes(self._last, 'big') + 1)
        transactions = FileIterator(self._path, start=start)
        try:
            for each in transactions:
                for record in each:
                    self.objects[record.oid] = record.tid, record.data
                self._last = each.tid
        finally:
            transactions.close()

    def marks(self):
        """Mark -> the oid and the tid of its object."""
        return {
            _state(data)['text']: (oid, tid)
            for oid, tid, data in self._of('tests.quorum.hour.bank', 'Mark')}

    def accounts(self):
        """Their balances; None: what it was in the beginning."""
        return [
            _state(data).get('balance')
            for *_, data in self._of('tests.quorum.hour.bank', 'Account')]

    def blobs(self):
        """The oid and the tid of each object that has one."""
        return [(oid, tid) for oid, tid, _ in self._of('ZODB.blob', 'Blob')]

    def _of(self, module, name):
        """The objects of this class."""
        begin = b'\x80\x03c' + f'{module}\n{name}\n'.encode()
        for oid, (tid, data) in self.objects.items():
            if data is not None and data.startswith(begin):
                yield oid, tid, data


def _state(data):
    unpickler = pickle.Unpickler(io.BytesIO(data))
    unpickler.persistent_load = lambda reference: reference
    unpickler.load()  # the class
    return unpickler.load() or {}


def difference(first, second):
    """Where two files differ; None: nowhere."""
    with open(first, 'rb') as one, open(second, 'rb') as other:
        position = 0
        while True:
            some, others = one.read(AT_ONCE), other.read(AT_ONCE)
            if some != others:
                for at, pair in enumerate(zip(some, others, strict=False)):
                    if pair[0] != pair[1]:
                        return position + at
                return position + min(len(some), len(others))
            if not some:
                return None
            position += len(some)


class Blobs:
    """Those of two directories."""

    def __init__(self, first, second):
        self._homes = first, second
        # Those that were compared, so that none is read twice.
        self._same = set()

    def difference(self):
        """In words; None: there is none."""
        found = [_files(home) for home in self._homes]
        for mine, others, home in (
                (*found, self._homes[0]), (*reversed(found), self._homes[1])):
            alone = mine.keys() - others.keys()
            if alone:
                return (f'{len(alone)} blobs only in {home}, as'
                        f' {min(alone)}')
        for name, (size, *_) in found[0].items():
            key = name, found[0][name], found[1][name]
            if key in self._same:
                continue
            if size != found[1][name][0] or not filecmp.cmp(
                    *(os.path.join(home, name) for home in self._homes),
                    shallow=False):
                return f'the blob {name} differs'
            self._same.add(key)
        self._same = {key for key in self._same if key[0] in found[0]}
        return None


def _files(home):
    """Name -> its size, date and number."""
    found = {}
    for directory, _, names in os.walk(home):
        for name in names:
            path = os.path.join(directory, name)
            if name.endswith('.blob'):
                about = os.stat(path)
                found[os.path.relpath(path, home)] = (
                    about.st_size, about.st_mtime_ns, about.st_ino)
    return found
