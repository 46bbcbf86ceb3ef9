"""Answers that come later than their calls, and their place in the outbox.

A method of a session makes one of these for the call that it carries out, and
returns it.  The answer may be given before the method returns.
"""


class Later:
    """An answer to a client that waits for it."""

    def __init__(self, connection):
        if connection.asked is None:
            raise ValueError('it needs a caller that waits for the answer')
        self._connection = connection
        self.message_id = connection.asked

    def frame(self, result, error):
        speech = self._connection.speech
        return (speech.reply(self.message_id, result) if error is None
                else speech.error(self.message_id, error))

    def done(self, result, error):
        self._connection.outbox.send(self.frame(result, error))


class Read(Later):
    """An answer that reader threads or slow calls prepare."""

    def __init__(self, connection):
        super().__init__(connection)
        connection.unanswered += 1

    def done(self, result, error):
        self._connection.answered()
        super().done(result, error)


class Load(Read):
    """An answer that keeps its place among the invalidations."""

    def __init__(self, connection, begin):
        """`begin` gives the place, and is a method of the outbox."""
        super().__init__(connection)
        self._place = begin()

    def done(self, result, error):
        self._connection.answered()
        self._connection.outbox.finish_load(
            self._place, self.frame(result, error))
