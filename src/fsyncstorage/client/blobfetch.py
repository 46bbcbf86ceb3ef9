"""Fetches a blob from the server into a download of the blob cache.

A read channel brings as much as the download wants now, from where an earlier
attempt ended.  If there is no channel, the ZEO connection brings the whole
blob, from its beginning, and its event loop writes the pieces.  If there is no
server, the ZEO connection waits for one.

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
    with channels.channel() as channel:
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
        self._under_way = {}  # (oid, serial) -> _Transfer
        self._calls = {}      # (oid, serial) -> future, done at the end

    def fetch(self, call, oid, serial, download):
        """`call` calls the server; no other thread fetches the same blob."""
        key = oid, serial
        self._wait_for_what_was_given_up(key)
        transfer = self._under_way[key] = _Transfer(download)
        try:
            self._calls[key] = call('sendBlob', oid, serial, wait=False)
            self._calls[key].result()
        except ClientDisconnected as error:
            raise Interrupted(str(error)) from error
        finally:
            del self._under_way[key]
            # If it is not done, this thread was interrupted, and the call
            # goes on.
            if key in self._calls and self._calls[key].done():
                del self._calls[key]
        if transfer.error is not None:
            raise transfer.error
        if not transfer.complete:
            raise POSKeyError(oid)

    def _wait_for_what_was_given_up(self, key):
        """The pieces of an earlier call may still arrive, and must not be
        taken for ours."""
        earlier = self._calls.pop(key, None)
        if earlier is not None:
            with contextlib.suppress(Exception):
                earlier.result()

    # The server's messages, in the event loop

    def start(self, oid, serial):
        self._change(oid, serial, 'restart')

    def piece(self, oid, serial, data):
        self._change(oid, serial, 'write', data)

    def stop(self, oid, serial):
        transfer = self._under_way.get((oid, serial))
        if transfer is not None:
            transfer.complete = True

    def _change(self, oid, serial, method, *args):
        """Call a method of the download, unless that was given up or has
        failed."""
        transfer = self._under_way.get((oid, serial))
        if transfer is not None and transfer.error is None:
            try:
                getattr(transfer.download, method)(*args)
            except Exception as error:
                transfer.error = error  # for the thread that waits


class _Transfer:

    error = None
    complete = False

    def __init__(self, download):
        self.download = download
