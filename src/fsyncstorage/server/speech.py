"""What is said to a peer, as bytes: in ZEO's language, or in ours."""

from ZEO.asyncio.marshal import reduce_exception
from ZEO.shortrepr import short_repr

from ..wire import frames
from ..wire import values
from ..wire.frames import LENGTH
from . import decoding
from . import quiet

logger = quiet.get_logger(__name__)


def frame(message):
    return LENGTH.pack(len(message)) + message


class ZeoSpeech:

    def __init__(self, handshake, session):
        #: Frames are the same for all peers of one encoding.
        self.encoding = handshake
        self.encode = decoding.encoder(handshake)
        self._session = session

    def reply(self, message_id, result):
        try:
            return frame(self.encode(message_id, 0, '.reply', result))
        except Exception:
            logger.exception('%s: a reply that cannot be encoded: %s',
                             self._session.log_label, short_repr(result))
            return self.error(
                message_id, ValueError("Couldn't pickle response"))

    def error(self, message_id, error):
        try:
            message = self.encode(
                message_id, 2, '.reply', reduce_exception(error))
        except Exception:  # its arguments cannot be encoded
            message = self.encode(
                message_id, 2, '.reply',
                reduce_exception(ValueError(short_repr(error))))
        return frame(message)

    def call(self, method, *arguments):
        return frame(self.encode(0, True, method, arguments))

    def done(self, message_id, tid, sizes, resolved):
        """A transaction is committed.  (The answer to its vote has said what
        was resolved.)"""
        return self.sizes(sizes) + self.reply(message_id, tid)

    def invalidation(self, tid, oids):
        return self.call('invalidateTransaction', tid, oids)

    def sizes(self, sizes):
        return self.call('info', sizes)


class OurSpeech:

    encoding = frames.MAGIC

    def __init__(self, session):
        self._session = session

    def reply(self, number, result):
        try:
            return frames.frame(frames.Result(number, values.encoded(result)))
        except Exception as error:
            logger.error('%s: a result that cannot be encoded: %s',
                         self._session.log_label, error)
            return self.error(number, error)

    def error(self, number, error):
        name, arguments = reduce_exception(error)
        return frames.frame(frames.Error(
            number, name.encode()[:1000],
            values.encoded(values.plain(arguments))))

    @staticmethod
    def done(number, tid, sizes, resolved):
        return frames.frame(frames.Done(
            number, tid, sizes['length'], sizes['size'], resolved))

    @staticmethod
    def invalidation(tid, oids):
        return frames.frame(frames.Invalid(0, tid, frames.joined(oids)))

    @staticmethod
    def sizes(sizes):
        return frames.frame(frames.Sizes(0, sizes['length'], sizes['size']))
