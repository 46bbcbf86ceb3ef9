"""Answers that come later than their calls, and their place in the outbox.

The connection calls `set_sender` (as ZEO does) when it is known which message
is answered.  From then on an answer may have a place in the outbox, which
keeps the order of what leaves a connection.
"""

from ZEO.asyncio.server import Delay


class Later(Delay):
    """An answer that is not there yet when the call returns."""

    def __init__(self, start=None):
        self._start = start

    def set_sender(self, message_id, connection):
        super().set_sender(message_id, connection)
        if self._start is not None:
            self._start(self)

    def done(self, result, error):
        connection = self.protocol
        if connection is not None:
            self._send(
                connection.outbox,
                connection.reply_frame(self.msgid, result) if error is None
                else connection.error_frame(self.msgid, error))

    def _send(self, outbox, frame):
        outbox.send(frame)


class AtOnce(Later):
    """An answer without content: that it arrives is all that it says."""

    def _send(self, outbox, frame):
        outbox.overtake(frame)


class Read(Later):
    """An answer that reader threads or slow calls prepare."""

    def set_sender(self, message_id, connection):
        connection.unanswered += 1
        super().set_sender(message_id, connection)

    def done(self, result, error):
        self.protocol.answered()
        super().done(result, error)


class Load(Read):
    """The answer to a load: keeps its place among the invalidations."""

    def set_sender(self, message_id, connection):
        self._place = self._begin(connection.outbox)
        super().set_sender(message_id, connection)

    def _begin(self, outbox):
        return outbox.begin_load()

    def _send(self, outbox, frame):
        outbox.finish_load(self._place, frame)


class InPlace(Load):
    """An answer that must leave before everything that is sent later."""

    def _begin(self, outbox):
        return outbox.reserve()
