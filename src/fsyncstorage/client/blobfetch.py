"""Fetches a blob from the server into a download of the blob cache.

A read channel brings as much as the download wants now, from where an earlier
attempt ended.  If there is no channel, the ZEO connection brings the whole
blob, from its beginning, and its event loop writes the pieces.  Without a
server, that waits for one.

`Interrupted` is raised when the connection was lost: retrying may work.
"""

import contextlib

from ZEO.Exceptions import ClientDisconnected
from ZODB.POSException import POSKeyError

from .. import wire
from .blobs.download import Download
from .blobs.download import Interrupted
from .channels import Channels
from .readchannel import Lost
from .readchannel import failure


def by_channel(channels: Channels, oid: bytes, serial: bytes,
               download: Download) -> None:
    """Raises `Lost` if there is no channel."""
    with contextlib.ExitStack() as stack:
        channel = stack.enter_context(channels.channel())
        try:
            for event in channel.blob(
                    oid, serial, download.offset, download.most):
                _take(event, oid, download)
        except Lost as error:
            raise Interrupted(str(error)) from error


def _take(event, oid, download):
    kind = event.__class__
    if kind is wire.Chunk:
        download.write(event.data)
    elif kind is wire.Size:
        download.expect(event.size)
    elif kind is not wire.End:
        raise failure(event, oid)


class Transfers:
    """Blobs that come over the ZEO connection."""

    def __init__(self):
        self._downloads = {}  # (oid, serial) -> _Transfer
        self._calls = {}      # (oid, serial) -> future, done at the end

    def fetch(self, call, oid, serial, download):
        """`call` asks the server; no other thread fetches the same blob."""
        key = oid, serial
        self._wait_for_what_was_given_up(key)
        arrival = self._downloads[key] = _Transfer(download)
        try:
            self._calls[key] = call('sendBlob', oid, serial, wait=False)
            self._calls[key].result()
        except ClientDisconnected as error:
            raise Interrupted(str(error)) from error
        finally:
            del self._downloads[key]
            self._forget_what_is_over(key)
        arrival.finish(oid)

    def _forget_what_is_over(self, key):
        """Keep the call if it is not done: this thread was interrupted."""
        if key in self._calls and self._calls[key].done():
            del self._calls[key]

    def _wait_for_what_was_given_up(self, key):
        """Its pieces may still come, and must not be taken for ours."""
        earlier = self._calls.pop(key, None)
        if earlier is not None:
            with contextlib.suppress(Exception):
                earlier.result()

    # The server's messages, in the event loop

    def start(self, oid, serial):
        self._tell(oid, serial, 'restart')

    def piece(self, oid, serial, data):
        self._tell(oid, serial, 'write', data)

    def stop(self, oid, serial):
        self._tell(oid, serial, 'complete')

    def _tell(self, oid, serial, what, *args):
        arrival = self._downloads.get((oid, serial))
        if arrival is not None:  # else it was given up meanwhile
            getattr(arrival, what)(*args)


class _Transfer:

    def __init__(self, download):
        self._download = download
        self._error = None
        self._complete = False

    def restart(self):
        self._do(self._download.restart)

    def write(self, data):
        self._do(self._download.write, data)

    def _do(self, function, *args):
        if self._error is None:
            try:
                function(*args)
            except Exception as error:
                self._error = error  # for the thread that waits

    def complete(self):
        self._complete = True

    def finish(self, oid):
        if self._error is not None:
            raise self._error
        if not self._complete:
            raise POSKeyError(oid)
