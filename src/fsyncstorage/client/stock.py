"""The client of a stock server: ZEO's own, with our cache of blobs.

It overrides what ZEO's client does with blobs, and nothing else.  Blobs come
over the ZEO connection: its event loop writes the pieces into a download.
"""

import contextlib
import os
import threading

from ZEO.ClientStorage import ClientStorage
from ZEO.Exceptions import ClientDisconnected
from ZODB.POSException import POSKeyError
from ZODB.POSException import Unsupported

from .blobs.blobcache import BlobCache
from .blobs.download import Interrupted
from .packs import Packs

# Bytes of a blob in one message.
MESSAGE_SIZE = 1 << 16


class StockClient(ClientStorage):

    #: None: there is no directory, or it is shared with the server.
    _blobs = None

    def __init__(self, addr, *args, blob_dir=None, shared_blob_dir=False,
                 blob_cache_size=None, blob_cache_size_check=None,
                 blob_cache_fill='commit', blob_cache_mode=0o400, **options):
        self._transfers = {}  # (oid, serial) -> _Transfer
        self._transferring = threading.Lock()
        if blob_dir is not None and not shared_blob_dir:
            self._blobs = BlobCache(
                blob_dir, blob_cache_size, self._fetch_blob, blob_cache_fill,
                blob_cache_mode)
        try:
            super().__init__(
                addr, *args, blob_dir=blob_dir,
                shared_blob_dir=shared_blob_dir, **options)
        except BaseException:
            self._close_blobs()
            raise
        self.packs = Packs(_tells_nothing)

    def close(self):
        super().close()
        self._close_blobs()

    def _close_blobs(self):
        if self._blobs is not None:
            self._blobs.close()

    # Reading

    def loadBlob(self, oid, serial):
        if self._blobs is None:
            return super().loadBlob(oid, serial)
        return self._blobs.load(oid, serial)

    def openCommittedBlobFile(self, oid, serial, blob=None):
        if self._blobs is None:
            return super().openCommittedBlobFile(oid, serial, blob)
        return self._blobs.open(oid, serial, blob)

    def leaseBlob(self, oid, serial, seconds=60):
        """As our own client's."""
        if self._blobs is not None:
            return self._blobs.lease(oid, serial, seconds)
        try:
            return super().loadBlob(oid, serial)
        except POSKeyError:
            return None

    def openArriving(self, oid, serial):
        """As our own client's."""
        if self._blobs is None:
            return super().openCommittedBlobFile(oid, serial)
        return self._blobs.open_arriving(oid, serial)

    def _fetch_blob(self, oid, serial, download):
        """No other thread fetches the same blob."""
        key = oid, serial
        transfer = _Transfer(download)
        with self._transferring:
            earlier = self._transfers.get(key)
        if earlier is not None:
            # The pieces of a call that was interrupted may still arrive.
            with contextlib.suppress(Exception):
                earlier.call.result()
        self._transfers[key] = transfer
        try:
            transfer.call = self._server.call(
                'sendBlob', oid, serial, wait=False)
            transfer.call.result()
        except ClientDisconnected as error:
            raise Interrupted(str(error)) from error
        finally:
            # If it is not done, this thread was interrupted.
            if transfer.call is None or transfer.call.done():
                del self._transfers[key]
        if transfer.error is not None:
            raise transfer.error
        if not transfer.is_complete:
            raise POSKeyError(oid)

    # The server's messages, in the event loop

    def receiveBlobStart(self, oid, serial):
        self._came(oid, serial, lambda download: download.restart())

    def receiveBlobChunk(self, oid, serial, chunk):
        self._came(oid, serial, lambda download: download.write(chunk))

    def receiveBlobStop(self, oid, serial):
        transfer = self._transfers.get((oid, serial))
        if transfer is not None:
            transfer.is_complete = True

    def _came(self, oid, serial, change):
        transfer = self._transfers.get((oid, serial))
        if transfer is not None and transfer.error is None:
            try:
                change(transfer.download)
            except Exception as error:
                transfer.error = error  # for the thread that waits

    # Writing

    def storeBlob(self, oid, serial, data, blobfilename, version, txn):
        if self._blobs is None:
            return super().storeBlob(
                oid, serial, data, blobfilename, version, txn)
        buffer = self._check_trans(txn, 'storeBlob')
        # From now on the file is ours, and no longer at the caller's path.
        staged = self._blobs.stage(blobfilename)
        buffer.storeBlob(oid, staged)
        self.store(oid, serial, data, version, txn)
        self._async_iter(_messages(staged, oid, serial, data, id(txn)))

    def _update_blob_cache(self, buffer, tid):
        while self._blobs is not None and buffer.blobs:
            oid, staged = buffer.blobs.pop()
            self._blobs.commit(oid, tid, staged)

    def tpc_abort(self, txn, timeout=None):
        try:
            buffer = txn.data(self)
        except KeyError:
            buffer = None
        try:
            super().tpc_abort(txn, timeout)
        finally:
            while self._blobs is not None and buffer and buffer.blobs:
                _, staged = buffer.blobs.pop()
                if os.path.exists(staged):
                    self._blobs.discard(staged)


def _tells_nothing(method, *_):
    raise Unsupported(
        'this server is not ours: it can pack, but tells nothing of packs, and'
        ' cannot cancel them')


class _Transfer:

    call = error = None
    is_complete = False

    def __init__(self, download):
        self.download = download


def _messages(path, oid, serial, data, transaction):
    """Yield the messages that store a blob."""
    yield 'storeBlobStart', ()
    with open(path, 'rb') as file:
        while piece := file.read(MESSAGE_SIZE):
            yield 'storeBlobChunk', (piece,)
    yield 'storeBlobEnd', (oid, serial, data, transaction)
