"""Answers the loads of one reader, in a process that reads.

`run` goes on until something comes that is not a load, or until no more can be
answered.  Its twin in C (core/answering.c) leaves the interpreter alone for as
long; this one serves where there is no core, and over TLS.
"""

import struct

from ..format import UNCERTAIN
from ..wire import frames

RECEIVED_AT_ONCE = 1 << 14
#: Bytes of answers that leave together, and of a long record.
PIECE = 1 << 16

#: A load: kind, number, oid, tid.
_LOAD = struct.Struct('>xI8s8s')
_NO_NUMBER = bytes(4)
#: Of an answer to a load, up to the data.
_FOUND = struct.Struct('>IBI8s8s8s')
_BEHIND_LENGTH = _FOUND.size - frames.LENGTH.size


class Answering:

    def __init__(self, connection, source, longest, received):
        """A frame may have `longest` bytes; `received` are the first ones."""
        self._connection = connection
        self._source = source
        self._inbox = frames.Inbox()
        self._inbox.longest = longest
        self._inbox.add(received)
        #: Answers that leave together.
        self._answers, self._waiting = [], 0
        self.loads = self.requests = self.received = self.sent = 0

    def run(self):
        """The body of a frame that is no load; None: the map is retired.

        EOFError: the client has closed; OSError: it does not read, or the file
        has become shorter; PeerError.
        """
        try:
            return self._answer_all()
        finally:
            self._flush()

    def _answer_all(self):
        while True:
            while (body := self._inbox.next_body()) is not None:
                self.requests += 1
                if (len(body) != _LOAD.size or body[:1] != b'L'
                        or body[1:5] == _NO_NUMBER):
                    return body
                self._load(*_LOAD.unpack(body))
                if self._source.is_retired:
                    return None
            self._flush()
            data = self._connection.recv(RECEIVED_AT_ONCE)
            if not data:
                raise EOFError('its client has closed it')
            self.received += len(data)
            self._inbox.add(data)

    def _load(self, number, oid, tid):
        source = self._source
        self.loads += 1
        as_of = source.announced  # before the look-up
        place = source.find(oid, tid)
        if place is UNCERTAIN:
            self._put(frames.frame(frames.Elsewhere(number)))
        elif place is None:
            self._put(frames.frame(frames.Nothing(number, as_of)))
        else:
            self._found(number, as_of, place)

    def _found(self, number, as_of, place):
        begin = place.begin
        if len(begin) < place.length:
            try:
                self._source.read(place, place.length - 1, 1)
            except OSError:  # the server says why the file is too short
                self._put(frames.frame(frames.Elsewhere(number)))
                return
        self._put(_FOUND.pack(
            _BEHIND_LENGTH + place.length, ord('f'), number, as_of,
            place.serial, place.end) + begin)
        at = len(begin)
        while at < place.length:
            piece = self._source.read(place, at, PIECE)
            self._put(piece)
            at += len(piece)

    def _put(self, data):
        self._answers.append(data)
        self._waiting += len(data)
        if self._waiting >= PIECE:
            self._flush()

    def _flush(self):
        if self._answers:
            data = b''.join(self._answers)
            self._answers, self._waiting = [], 0
            self._connection.sendall(data)
            self.sent += len(data)
