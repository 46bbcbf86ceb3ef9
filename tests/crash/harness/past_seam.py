"""Records what code of ZODB does to files by itself, not through our Disk.

That is all of stock FileStorage, and those parts of it that FsyncStorage uses.
The names `open`, `os`, `fsync` and the like are replaced in the modules of
ZODB that use them (as they are in ZODB 6.4), and only there.
"""

import contextlib
import importlib
import io
import os
from unittest import mock


@contextlib.contextmanager
def recorded(recorder):
    """While this lasts, code of ZODB is recorded."""
    everywhere = {'open': _opener(recorder), 'os': _OS(recorder)}
    removals = {
        'remove_committed': everywhere['os'].remove,
        'remove_committed_dir': everywhere['os'].remove_tree,
        'link_or_copy': everywhere['os'].link,
    }
    with contextlib.ExitStack() as stack:
        for module, names in (
            ('FileStorage.FileStorage',
             everywhere | removals | {'fsync': everywhere['os'].fsync}),
            ('FileStorage.fspack', everywhere),
            ('blob', everywhere | removals),
            ('fsIndex', {'open': everywhere['open']}),
        ):
            module = importlib.import_module(f'ZODB.{module}')
            for name, value in names.items():
                stack.enter_context(mock.patch.object(
                    module, name, value, create=name == 'open'))
        yield


class _OS:
    """The module `os`, recorded where it changes something."""

    def __init__(self, recorder):
        self._recorder = recorder

    def __getattr__(self, name):
        return getattr(os, name)

    def fsync(self, fd):
        with self._recorder.syncing(fd):
            os.fsync(fd)

    def link(self, source, target):
        with self._recorder.linking(source, target):
            os.link(source, target)

    def makedirs(self, path, *args):
        with self._recorder.making_directory(path):
            os.makedirs(path, *args)

    mkdir = makedirs

    def remove(self, path):
        with self._recorder.removing(path):
            os.remove(path)

    def rename(self, source, target):
        with self._recorder.renaming(source, target):
            os.rename(source, target)

    def rmdir(self, path):
        with self._recorder.removing(path):
            os.rmdir(path)

    def remove_tree(self, path):
        for parent, directories, files in os.walk(path, topdown=False):
            for name in files:
                self.remove(os.path.join(parent, name))
            self.rmdir(parent)


def _opener(recorder):

    def recording_open(path, mode='r', buffering=-1):
        if not set(mode) & set('w+'):
            return open(path, mode, buffering)
        raw = _File(recorder, path, mode.replace('b', ''))
        if buffering == 0:
            return raw
        if '+' in mode:
            return io.BufferedRandom(raw)
        file = io.BufferedWriter(raw)
        return file if 'b' in mode else io.TextIOWrapper(file)

    return recording_open


class _File(io.FileIO):
    """An unbuffered file."""

    def __init__(self, recorder, path, mode):
        self._recorder = recorder
        with recorder.opening(path, 'w' in mode):
            super().__init__(path, mode)

    def write(self, data):
        with self._recorder.writing(self.fileno(), data, self.tell()):
            return super().write(data)

    def truncate(self, size=None):
        if size is None:
            size = self.tell()
        with self._recorder.truncating(self.fileno(), size):
            return super().truncate(size)
