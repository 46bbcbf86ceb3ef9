"""Loads and blobs for clients of ours, on their streams.

A client asks here where no reader can answer.  What is promised:

- The answer to a load names the tid for which the answer is true.
- A cached record is answered at once, any other by the reader threads.
- A blob that turns out shorter than announced ends the connection.
"""

import functools
import os

from ZODB.utils import z64

from ..wire import frames
from . import calls
from . import quiet
from .workers import Dropped

logger = quiet.get_logger(__name__)


class Loading:
    """A stream, as far as it loads."""

    #: Set by the class that is derived from this one.
    connection = service = stats = tally = None
    _readers = _streams = None

    def _load(self, message):
        service, (number, oid, tid) = self.service, message
        self.stats.loads += 1
        self.tally.loads += 1
        as_of = service.last_tid  # before the look-up
        if service.load_cached:
            try:
                found = service.load_cached(oid, tid)
            except BlockingIOError:
                pass  # it is on the disk
            except Exception as error:
                self._loaded(number, as_of, None, error)
                return
            else:
                service.figures.loads_from_memory += 1
                self._loaded(number, as_of, found, None)
                return
        service.figures.loads_from_disk += 1
        self.connection.unanswered += 1
        self._readers.submit(
            functools.partial(self._looked_up, number, as_of),
            service.storage.loadBefore, oid, tid)

    def _looked_up(self, *arguments):
        self.connection.answered()
        self._loaded(*arguments)

    def _loaded(self, number, as_of, found, error):
        if error is not None:
            self._cannot_read(number, as_of, error)
        elif found is None:
            self.say(frames.Nothing(number, as_of))
        else:
            data, serial, end = found
            try:
                self.say(frames.Found(number, as_of, serial, end or z64, data))
            except frames.CallerError as too_large:
                self._cannot_read(number, as_of, too_large)

    def _get_blob(self, message):
        self.connection.unanswered += 1
        self._streams.add(_Blob(self, message))

    def blob_sent(self, number, error):
        self.connection.answered()
        if error is not None:
            self._cannot_read(number, self.service.last_tid, error)

    def _cannot_read(self, number, as_of, error):
        if isinstance(error, KeyError):
            self.say(frames.Missing(number, as_of))
        elif not isinstance(error, Dropped):  # else its client has gone
            logger.error('%s: a load or a blob: %r', self.log_label, error,
                         exc_info=calls.traceback_of(error))
            self._answer_error(number, error)

    def _answer_error(self, number, error):
        self.connection.outbox.send(
            self.connection.speech.error(number, error))

    def say(self, message):
        self.connection.outbox.send(frames.frame(message))


class _Blob:
    """How its client is told (blobstream)."""

    def __init__(self, reading, message):
        self._reading = reading
        self._message = message

    def open(self):
        path = self._reading.service.storage.loadBlob(
            self._message.oid, self._message.serial)
        file = open(path, 'rb', buffering=0)
        self._size = os.fstat(file.fileno()).st_size
        if self._size < self._message.offset:
            file.close()
            raise ValueError(f'a blob of {self._size} bytes has no offset'
                             f' {self._message.offset}')
        file.seek(self._message.offset)
        return file, self._message.answer(self._size)

    def begin(self):
        self._reading.say(
            frames.BlobSize(self._message.number, self._size))

    def piece(self, data):
        self._reading.say(frames.BlobChunk(self._message.number, data))

    def end(self, error):
        self._reading.blob_sent(self._message.number, error)
