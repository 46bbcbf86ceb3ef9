"""Reads the log from its beginning, before it is trimmed.

What the fold applies has its order: no record of an epoch is behind that of
the next one.  So of each transaction it is known in which epoch it came into
the log.
"""

import contextlib
import struct
import threading

from fsyncstorage.quorum.etcd.engine import EtcdLog
from fsyncstorage.quorum.etcd.section import PREFIX
from fsyncstorage.quorum.etcd.settings import Settings
from fsyncstorage.quorum.etcd.settings import address
from fsyncstorage.quorum.history import fold
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import Epoch
from fsyncstorage.quorum.log.interface import Missing
from fsyncstorage.quorum.log.interface import Trimmed
from fsyncstorage.quorum.log.interface import Unanswered

# Of a transaction in a data file: its tid, and its length, but for 8.
_HEADER = struct.Struct('>8sQ')


class Watcher:

    def __init__(self, etcd, name, state, say):
        self._log = EtcdLog(Settings(list(map(address, etcd)), PREFIX + name))
        self._state = state
        self._say = say
        self._batch = b''
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name='watcher')
        #: tid -> the epoch in which it came into the log.
        self.epochs = {}
        #: Why it cannot say more: a refusal, records that were gone.
        self.trouble = None
        self._thread.start()

    @property
    def epoch(self):
        return self._state.epoch

    @property
    def end(self):
        """The generation of the file, and where it ends."""
        return self._state.generation, self._state.end

    @property
    def is_packing(self):
        return self._state.pack is not None

    def close(self):
        self._stopped.set()
        self._log.stop()
        self._thread.join()
        self._log.close()

    def _run(self):
        member = None
        while not self._stopped.is_set():
            next = self._state.place.sequence + 1
            try:
                raws = self._log.read(next, member)
                if not raws:
                    self._log.wait(next, 1.0)
            except Unanswered:
                self._stopped.wait(0.2)
                continue
            except (Trimmed, Missing) as error:
                self.trouble = f'record {next}: {type(error).__name__} {error}'
                self._stopped.wait(1)
                continue
            refused = next if self._apply(raws) else None
            if refused is not None:
                # Another member may have it.
                member = 0 if member is None else member + 1
                self._stopped.wait(0.3)
            else:
                member = None

    def _apply(self, raws):
        """Whether one is refused."""
        for raw in raws:
            found = fold.step(self._state, raw)
            if isinstance(found, fold.Refuse):
                self.trouble = found.reason
                return True
            if isinstance(found, fold.Apply):
                self._take(found)
        self.trouble = None
        return False

    def _take(self, applied):
        record, body = applied.record, applied.record.body
        self._state = applied.state
        if isinstance(body, Data):
            if record.position == body.begin:
                self._batch = b''
            self._batch += body.data
            if len(self._batch) == body.end - body.begin:
                self._read(self._batch, record.epoch)
        elif isinstance(body, Epoch):
            node = body.node.rstrip(b'\0').decode(errors='replace')
            self._say(f'epoch {record.epoch} begins, of {node}, with record'
                      f' {record.sequence}')

    def _read(self, batch, epoch):
        position = 0
        with contextlib.suppress(struct.error):
            while position < len(batch):
                tid, length = _HEADER.unpack_from(batch, position)
                self.epochs[tid] = epoch
                position += length + 8
