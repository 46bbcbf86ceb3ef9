"""How a blob comes from the server into a download of the blob cache.

On a read channel of its own, from where an earlier attempt ended; or, from a
server without channels, over the ZEO connection: its event loop then writes
the pieces, from the beginning.

`Interrupted` is raised when the connection was lost: it may be tried again.
"""

from ZEO.Exceptions import ClientDisconnected
from ZEO.Exceptions import ServerException
from ZODB.POSException import POSKeyError

from .. import wire
from .blobcache import Interrupted
from .readchannel import Lost


def by_channel(channels, oid, serial, download):
    try:
        with channels.channel() as channel:
            for event in channel.blob(oid, serial, download.offset):
                _take(event, oid, download)
    except Lost as error:
        raise Interrupted(str(error)) from error


def _take(event, oid, download):
    kind = event.__class__
    if kind is wire.Chunk:
        download.write(event.data)
    elif kind is wire.Size:
        download.expect(event.size)
    elif kind is wire.Missing:
        raise POSKeyError(oid)
    elif kind is wire.Failed:
        raise ServerException(event.type, event.text)


class Arrivals:
    """Blobs that come over the ZEO connection."""

    def __init__(self):
        self._downloads = {}  # (oid, serial) -> _Arrival

    def fetch(self, call, oid, serial, download):
        """`call` asks the server, and returns when all was received."""
        arrival = _Arrival(download)
        self._downloads[oid, serial] = arrival
        try:
            call('sendBlob', oid, serial)
        except ClientDisconnected as error:
            raise Interrupted(str(error)) from error
        finally:
            del self._downloads[oid, serial]
        arrival.finish(oid)

    # What the server says, in the event loop

    def start(self, oid, serial):
        self._downloads[oid, serial].do('restart')

    def piece(self, oid, serial, data):
        self._downloads[oid, serial].do('write', data)

    def stop(self, oid, serial):
        self._downloads[oid, serial].complete = True


class _Arrival:

    def __init__(self, download):
        self._download = download
        self._error = None
        self.complete = False

    def do(self, what, *args):
        if self._error is None:
            try:
                getattr(self._download, what)(*args)
            except Exception as error:
                self._error = error  # is for the thread that waits

    def finish(self, oid):
        if self._error is not None:
            raise self._error
        if not self.complete:
            raise POSKeyError(oid)
