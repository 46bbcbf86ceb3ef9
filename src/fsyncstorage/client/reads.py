"""Loads, prefetches and blobs from the server: by a reader, or the stream.

If another thread has already asked for an object, a thread waits for that
answer.  Which answers go into the cache is decided there (cache, pending).
"""

import logging

from ZODB.POSException import POSKeyError
from ZODB.utils import z64

from ..wire import frames
from .failover import opened
from .prefetching import Prefetches
from .raised import exception
from .readers import Lost
from .readers import Reader
from .readers import Readers

logger = logging.getLogger(__name__)

# Seconds to wait for another thread's load of the same object; after that, the
# thread loads it itself.
SHARED_LOAD_WITHIN = 10


class Reads:
    """From one server, for as long as the stream to it."""

    def __init__(self, name, cache, stream, most, address, ssl, hostname,
                 hello):
        self._cache = cache
        self._stream = stream
        self._generation = cache.generation

        def open_one(within):
            return Reader(opened(address, ssl, hostname, hello, within))

        self._readers = Readers(name, most, open_one)
        #: Separate, so that a large blob does not delay loads of objects.
        self._blob_readers = Readers(name, most, open_one)
        self._prefetches = Prefetches(cache, Readers(name, 1, open_one))

    def load_before(self, oid, tid):
        while True:
            load, last_tid = self._cache.ask(oid, tid, self._generation)
            if last_tid is None:
                return content(self._answer(load), oid)
            self._wait_for(load)
            reply = load.reply
            if reply is not None and reply.as_of >= last_tid:
                return content(reply, oid)

    def _wait_for(self, load):
        """Wait until another thread's load has ended, or give up waiting."""
        if load.prefetches is None:
            if load.done.acquire(timeout=SHARED_LOAD_WITHIN):
                load.done.release()
            else:
                # A thread may have been interrupted before it released it.
                self._cache.forsake(load)
        elif not load.prefetches.wait_for(load):
            self._cache.forsake(load)  # this thread would wait for itself

    def _answer(self, load):
        try:
            return self._settled(load, self._asked(load.oid, load.tid))
        finally:
            self._cache.answered(load)

    def _asked(self, oid, tid):
        try:
            return self._readers.load(oid, tid)
        except Lost as error:
            logger.debug('a load goes over the stream: %s', error)
            return frames.Elsewhere(0)

    def _settled(self, load, reply):
        """The reply, of the stream where a reader cannot say.  The load gets
        it."""
        if reply.__class__ is frames.Elsewhere:
            reply = self._stream.ask(frames.Load(0, load.oid, load.tid))
        if reply.__class__ is not frames.Error:
            if reply.as_of < load.since:
                behind = 'the server is behind what this client has seen'
                self._stream.end(behind)
                raise Lost(behind)
            load.reply = reply
        return reply

    def replied(self, load, body):
        """What loadBefore returns, where a reader has said this to the core,
        which ends the load then."""
        return content(self._settled(load, frames.taken(body)), load.oid)

    def prefetch(self, oids, tid):
        """Ask for the objects that are not in the cache; do not wait."""
        # A list, before anything else: iterating may load objects.  A new
        # object has no oid.
        oids = [oid for oid in oids if oid is not None]
        self._prefetches.add(oids, tid, self._generation)

    def fetch_blob(self, oid, serial, download):
        """Bring as much as the download wants, from where it stands; Lost, or
        Unanswered, if that is interrupted."""
        try:
            reader = self._blob_readers.take()
        except Lost as error:
            logger.debug('a blob comes over the stream: %s', error)
            self._blob_over_the_stream(oid, serial, download)
            return
        try:
            asked, = reader.send([_wanted(oid, serial, download)])
            while reader.is_missing(asked.number):
                message = reader.next()
                failed = _put(download, message)
                if failed is not None:
                    raise failed
        except BaseException:
            self._blob_readers.drop(reader)
            raise
        self._blob_readers.give_back(reader)
        if message.__class__ not in _OF_A_BLOB:
            self._blob_over_the_stream(oid, serial, download)

    def _blob_over_the_stream(self, oid, serial, download):
        message = self._stream.ask(
            _wanted(oid, serial, download),
            complete=lambda message: _put(download, message))
        if message.__class__ not in _OF_A_BLOB:
            content(message, oid)

    def close(self):
        for each in self._readers, self._blob_readers, self._prefetches:
            each.close()


def content(reply, oid):
    """What loadBefore returns."""
    kind = reply.__class__
    if kind is frames.Found:
        return (reply.data, reply.serial,
                None if reply.end == z64 else reply.end)
    if kind is frames.Nothing:
        return None
    if kind is frames.Missing:
        raise POSKeyError(oid)
    raise exception(reply)


_OF_A_BLOB = frames.BlobSize, frames.BlobChunk


def _wanted(oid, serial, download):
    return frames.GetBlob(0, oid, serial, download.offset, download.most)


def _put(download, message):
    """Put a piece into the download; return the error, or None."""
    try:
        if message.__class__ is frames.BlobChunk:
            download.write(message.data)
        elif message.__class__ is frames.BlobSize:
            download.expect(message.size)
    except Exception as error:  # of the disk
        return error
    return None
