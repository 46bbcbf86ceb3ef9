"""The server's end of a reader: a connection of a client for loads and blobs.

(In work: the frames of `server.channel` become these.)
"""

from ZEO.shortrepr import short_repr

from ..server.channel import MOST_CHANNELS
from ..server.channel import Channel
from ..server.channel import Unwelcome
from ..server.clients import Tally
from . import frames
from . import values


class Speech:
    """The frames of a reader."""

    Load = frames.Load
    PeerError = frames.PeerError
    CallerError = frames.CallerError
    size = staticmethod(
        lambda number, size: frames.frame(frames.BlobSize(number, size)))
    chunk = staticmethod(frames.head_of_chunk)
    welcome = staticmethod(bytes)  # `admit` has made it

    class Requests(frames.Inbox):

        def next(self):
            message = super().next()
            if message is not None and (not message.number or (
                    message.__class__ not in (frames.Load, frames.GetBlob))):
                raise frames.PeerError(f'{message!r:.100} of a reader')
            return message

    @staticmethod
    def found(number, as_of, data, serial, end):
        return frames.frame(frames.Found(
            number, as_of, serial, end or frames.NO_TID, data))

    @staticmethod
    def nothing(number, as_of):
        return frames.frame(frames.Nothing(number, as_of))

    @staticmethod
    def missing(number, as_of):
        return frames.frame(frames.Missing(number, as_of))

    @staticmethod
    def failed(number, as_of, kind, text):
        return frames.frame(frames.Error(
            number, kind.encode()[:1000], values.encoded((text[:1000],))))


class Reader(Channel):

    speech = Speech


def welcomed(server, connection, hello):
    """The Reader that takes the place of a connection; or `Unwelcome`."""
    if hello.instance != server.instance:
        raise Unwelcome(frames.OTHER_INSTANCE,
                        'the server was restarted: open a stream')
    name = hello.storage.decode('utf-8', 'replace')
    if name not in server.services:
        raise Unwelcome(frames.UNKNOWN_STORAGE,
                        f'no storage {short_repr(name)} is served here')
    open_ones = sum(
        service.figures.channels for service in server.services.values())
    if open_ones >= MOST_CHANNELS:
        raise Unwelcome(frames.TOO_MANY,
                        f'{open_ones} readers are open, which is the limit')
    return Reader(
        connection.loop, connection.session.log_label, server.services[name],
        server.accounts, server.forget,
        server.tallies.get(hello.mark) or Tally(), server.may_answer)
