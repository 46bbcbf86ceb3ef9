"""What a client stores in one transaction, in its order, until its vote.

It is in memory until the caller moves it to a file.  In both places, the
stores of a batch (`wire.batch`) are one entry.
"""

import contextlib
import pickle

from ZEO.StorageServer import CommitLog

from ..wire import batch

BATCH = 'batch'


class _Log(CommitLog):

    def __init__(self):
        super().__init__()
        # In the protocol of stock's pickler, bytes are a call with a text: ten
        # times as slow to read.
        self.pickler = pickle.Pickler(self.file, pickle.HIGHEST_PROTOCOL)
        self.pickler.fast = True

    def __iter__(self):
        self.file.seek(0)
        load = pickle.Unpickler(self.file).load
        for _ in range(self.stores):
            yield load()

    def batch(self, message):
        self.pickler.dump(('_batch', (message,)))
        self.stores += 1


class Operations:

    def __init__(self):
        #: Pairs: the name of an operation, and its arguments.
        self.in_memory = []
        #: The file; None as long as there is none.
        self.log = None

    def add(self, name, arguments):
        if self.log is None:
            self.in_memory.append((name, arguments))
        else:
            getattr(self.log, name)(*arguments)

    def move_to_file(self):
        self.log = _Log()
        for name, arguments in self.in_memory:
            getattr(self.log, name)(*arguments)
        self.in_memory = []

    def __iter__(self):
        """Yield names and arguments; for a batch, those of each store in it.
        """
        for name, arguments in (
                self.in_memory if self.log is None else self._in_file()):
            if name == BATCH:
                for store in batch.stores(*arguments):
                    yield 'store', store
            else:
                yield name, arguments

    def last_stored(self, oid):
        """The data that were last stored for this object, or None."""
        data = None
        for name, arguments in self:
            if name == 'store' and arguments[0] == oid:
                data = arguments[2]
        return data

    def _in_file(self):
        for name, arguments in self.log:
            yield name.removeprefix('_'), arguments

    def forget(self):
        """Free what is in memory."""
        self.in_memory = []

    def close(self):
        """Free everything.  May be repeated."""
        self.forget()
        if self.log is not None:
            with contextlib.suppress(OSError):
                self.log.close()
