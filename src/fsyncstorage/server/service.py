"""One storage that is served: its clients, and what they were told.

Everything here runs in the event loop, except for `close`, statistics, and the
look-up of invalidations.

When a transaction is *announced*, the client that committed it gets the reply
to `tpc_finish`, and all other clients get an invalidation, in the order of the
tids.  The last tid that was announced is the state of this server: a client
that registers, asks for the last transaction or verifies its cache is answered
with it, and so hears of every transaction exactly once.  docs/internals/
session.rst ("Announcements") has more.
"""

import collections
import math
import time

import ZODB.TimeStamp
from ZODB.POSException import ConflictError
from ZODB.POSException import TransactionError
from ZODB.POSException import UndoError
from ZODB.utils import oid_repr

from ..commit.policies import DEFAULT_READER_THREADS
from ..histogram import Histogram
from . import calls
from . import handout
from . import quiet
from .calls import is_oid
from .clients import Clients
from .committer import Committer
from .oursession import Streams
from .packs import PacksOfService
from .threads import attempt
from .workers import Workers

logger = quiet.get_logger(__name__)
quiet.get_logger('fsyncstorage.storage.conflicts')  # clients cause its lines

# Seconds between two rounds of invalidations: under load, one send for each
# transaction and client would cost more than everything else.
QUIET = 0.01
# But at least this for each client: five times what a round takes for it.
A_SEND = 50e-6

SLOW_THREADS = 4

# Most oids that are looked up or remembered, for clients that connect again.
# A client that has missed more drops its cache, which is better.
MOST_INVALIDATIONS = 1 << 18

# Objects of a slow commit that the log names.
MOST_NAMED = 5

# The greatest number that fits into a frame of a stream.
GREATEST = (1 << 64) - 1


class Traffic:
    """Bytes received and sent, on all connections but readers; of the whole
    server."""

    received = sent = 0


class Figures:
    """What is counted of one storage, in addition to stock's StorageStats.  It
    belongs to the event loop; others may read it."""

    def __init__(self):
        #: Readers that are open; their requests, and the bytes on them.
        self.channels = self.requests = self.received = self.sent = 0
        #: Loads that were answered at once, and loads given to a thread.
        self.loads_from_memory = self.loads_from_disk = 0
        #: Loads that processes which read have answered.
        self.loads_by_readers = 0
        #: Invalidations: messages to a client about another's transaction.
        self.invalidations = 0
        #: Seconds from the request to vote to the answer to the finish.
        self.commit_time = Histogram()


class _News:
    """A transaction on its way to be announced."""

    def __init__(self, tid, oids, ballot=None, ready=True):
        self.tid = tid
        self.oids = oids
        self.ballot = ballot
        self.ready = ready
        self.error = None
        self._frames = {}

    def frame(self, connection):
        """The invalidation; encoded once for each encoding that is used."""
        encoding = connection.speech.encoding
        if encoding not in self._frames:
            self._frames[encoding] = connection.speech.invalidation(
                self.tid, self.oids)
        return self._frames[encoding]


def _need_not_wait(storage):
    """Is its vote ours?  A wrapper's vote has no mark, or a copy of the mark
    of the vote that it calls (functools.wraps)."""
    vote = storage.tpc_vote
    return (getattr(vote, 'need_not_wait', False)
            and not hasattr(vote, '__wrapped__')
            and hasattr(storage, 'call_when_served'))


class Service:

    #: Hands the data file to local clients (Handout); None: it is not offered.
    handout = None

    def __init__(self, name, storage, sessions, stats, loop, mailbox, *,
                 queue_size, queue_age, timeout, resolves_conflicts=True):
        self.name = name
        self.storage = storage
        self.sessions = sessions
        self.stats = stats
        self.timeout = timeout
        self.loop = loop
        self.post = mailbox.post
        self._publishes_soon = False
        self._quiet = None        # a timer
        self._unflushed = False
        self._queue_age = queue_age
        self._queue = collections.deque(maxlen=queue_size)
        self._news = collections.deque()
        self.reset_invalidations()
        #: The size of the storage at the last announcement, or at the start.
        self.announced_size = self.size_info()
        self.readers = Workers(
            f'reader of {name}',
            getattr(storage, 'reader_threads', DEFAULT_READER_THREADS),
            mailbox)
        self.slow = Workers(f'slow calls of {name}', SLOW_THREADS, mailbox)
        #: Looks for commits whose answers were lost; it may wait for a log.
        self.questions = Workers(f'questions to {name}', 1, mailbox)
        self.streams = Streams()
        self.packs = PacksOfService(self)
        self.figures = Figures()
        #: Seconds from which on a commit is slow.
        self._slow_from = getattr(storage, 'slow_commit_log', 0) or math.inf
        # Not through a wrapper: its records differ from those in the cache of
        # the storage that it wraps.
        self.load_cached = (
            hasattr(type(storage), 'load_before_cached')
            and storage.load_before_cached)
        self.own_publishing = getattr(storage, 'own_publishing', None)
        self.votes_side_by_side = (
            bool(self.own_publishing) and _need_not_wait(storage))
        self.committer = Committer(name, storage, self, self.post)
        distrust_records = getattr(storage, 'distrust_records', None)
        if distrust_records:
            distrust_records(resolve=resolves_conflicts)

    def start(self):
        if self.own_publishing:
            self.own_publishing(self._publish_soon)
        self.handout = handout.offered(self.storage)

    def close(self):
        """Stop the threads; transactions that are finishing go on."""
        if self.own_publishing:
            # A vote may wait for a pack, and the pack for publishing.
            self.own_publishing(None)
            self.storage.publish()
        if self.handout is not None:
            self.handout.close()
        self.committer.close()
        self.readers.close()
        self.slow.close()
        self.packs.close()
        self.questions.close()

    def _publish_soon(self):
        """Called from any thread.  One that was posted, and has not begun, is
        enough."""
        if not self._publishes_soon:
            self._publishes_soon = True
            try:
                self.post(self.publish)
            except BaseException:
                self._publishes_soon = False
                raise

    def publish(self):
        """Publish and announce what the policy allows by now."""
        self._publishes_soon = False
        try:
            self.storage.publish()
            self.announce()
        finally:
            self.committer.published()

    # Called by the committer

    def refused(self, ballot, error):
        """A vote has failed."""
        if isinstance(error, ConflictError):
            self.stats.conflicts += 1
            ballot.session.tally.conflicts += 1
        if not isinstance(error, TransactionError | UndoError):
            logger.error('%s: a vote failed: %r', ballot.session.log_label,
                         error, exc_info=calls.traceback_of(error))

    def published(self, ballot, tid, durable=True):
        self._news.append(_News(tid, ballot.oids, ballot, durable))

    def finished(self, ballot, tid):
        """A storage that is not ours has finished."""
        news = self._news_of(ballot)
        if news is None:  # it did not call `f`
            self.published(ballot, tid)
        else:
            news.ready = True
        self.announce()

    def failed(self, ballot, error):
        """A finish has failed."""
        logger.error('%s: a transaction could not be finished',
                     ballot.session.log_label, exc_info=error)
        news = self._news_of(ballot)
        try:
            if news is not None:
                news.error = error
                news.ready = True
                self.announce()
            else:
                ballot.session.settled(ballot)
                ballot.tell(None, error)
        finally:
            self.committer.failed()

    def _news_of(self, ballot):
        for news in self._news:
            if news.ballot is ballot:
                return news

    def changed_elsewhere(self, tid, oids):
        """The storage is a client of another server, which announced this."""
        try:
            if not is_oid(tid):
                raise ValueError(f'a transaction id that is none: {tid!r:.99}')
            # No client has an object of any other oid.
            news = _News(tid, list(filter(is_oid, oids)))
        except Exception:
            self.end_all()
            raise
        self._news.append(news)
        self.announce()

    # Announcing

    def announce(self):
        """Announce all that may be announced now."""
        batch = []
        while self._news and self._news[0].ready:
            batch.append(self._news.popleft())
        if not batch:
            return
        try:
            for news in batch:
                self._remember(news.tid, news.oids)
            self._set_last_tid(max(self.last_tid, batch[-1].tid))
            self._tell(batch)
        except BaseException:
            self.end_all()
            raise
        finally:
            # After the announcement: a client must hear of the transaction
            # before it gets the outcome.  All of it is one step of the loop.
            for news in batch:
                if news.ballot is not None:
                    attempt(news.ballot.session.settled, news.ballot)

    def end_all(self):
        """Disconnect all: a client that was not told of a transaction must not
        go on with an old state."""
        for session in list(self.sessions):
            session.end()

    def _remember(self, tid, oids):
        if len(self._queue) == self._queue.maxlen and self._queue:
            self._remembered -= len(self._queue[0][1])
        self._queue.append((tid, oids))
        self._remembered += len(oids)
        while self._remembered > MOST_INVALIDATIONS and len(self._queue) > 1:
            self._remembered -= len(self._queue.popleft()[1])

    def _tell(self, batch):
        self.announced_size = self.size_info()
        committers = {
            news.ballot.session for news in batch if news.ballot is not None}
        of_encoding = {}
        for session in self.sessions:
            connection = session.connection
            self.figures.invalidations += len(batch)
            if session in committers:
                self._tell_a_committer(session, batch)
                continue
            encoding = connection.speech.encoding
            if encoding not in of_encoding:
                of_encoding[encoding] = b''.join(
                    [news.frame(connection) for news in batch])
            connection.outbox.announce(of_encoding[encoding], at_once=False)
            self._unflushed = True
        if self._unflushed and self._quiet is None:
            self._flush(at_once=True)

    def _tell_a_committer(self, session, batch):
        """In the place of an invalidation, the one that waits for the answer
        to its finish gets that."""
        connection = session.connection
        for news in batch:
            ballot = news.ballot
            if (ballot is not None and ballot.session is session
                    and ballot.done is not None):
                self._answer(news)
            else:
                connection.outbox.announce(
                    news.frame(connection), at_once=False)
                self._unflushed = True

    def _answer(self, news):
        """Tell the client that has committed it."""
        self.figures.invalidations -= 1
        if news.error is None:
            now = time.monotonic()
            took = now - news.ballot.asked_at
            self.figures.commit_time.add(took)
            if took >= self._slow_from:
                _say_slow(news.ballot, news.tid, now)
        news.ballot.tell(news.tid, news.error)

    def _flush(self, at_once):
        """Send the invalidations that wait, and begin a quiet time.

        They leave earlier if anything else is sent on their connection.
        """
        self._unflushed = False
        for session in self.sessions:
            attempt(self._flush_one, session, at_once)
        self._quiet = self.loop.call_later(
            max(QUIET, A_SEND * len(self.sessions)), self._quiet_is_over)

    def _quiet_is_over(self):
        self._quiet = None
        if self._unflushed:
            self._flush(at_once=False)

    def _flush_one(self, session, at_once):
        try:
            if at_once:
                session.connection.flush()
            elif not session.connection.flush_if_old():
                self._unflushed = True
        except BaseException:
            session.end()  # it has missed an invalidation
            raise

    def broadcast_info(self):
        info = self.announced_size = self.size_info()
        for session in self.sessions:
            session.connection.outbox.send(
                session.connection.speech.sizes(info))

    def size_info(self):
        """Two numbers that fit into 8 bytes; 0 where the storage gives none.

        They may come from another server, and no client relies on them.  Even
        if they are wrong, clients must be told of the transaction.
        """
        try:
            length, size = int(len(self.storage)), int(self.storage.getSize())
        except Exception:
            length = size = 0
        return {'length': min(max(length, 0), GREATEST),
                'size': min(max(size, 0), GREATEST)}

    # Verification of a client's cache

    def reset_invalidations(self):
        last = getattr(self.storage, 'lastInvalidations', None)
        self._queue.clear()
        if last is not None:
            self._queue.extend(last(self._queue.maxlen))
        self._remembered = sum(len(oids) for _, oids in self._queue)
        self._set_last_tid(self.storage.lastTransaction())

    def _set_last_tid(self, tid):
        """Before any client is told: processes that read must know it, too."""
        if hasattr(type(self.storage), 'object_map'):
            self.storage.announce(tid)
        self.last_tid = tid

    def invalidations_since(self, tid):
        """The last tid and the oids changed since `tid`; None if not known.

        If `tid` is not in this file, we do not know what has changed since:
        the file has lost its end, and transactions were added without it.
        """
        if tid == self.last_tid:
            return tid, []
        tids = [each for each, _ in self._queue]
        if tid not in tids:
            return None
        oids = set()
        for _, changed in list(self._queue)[tids.index(tid) + 1:]:
            oids.update(changed)
        return self.last_tid, list(oids)

    def young_enough(self, tid):
        """May the transactions since then be looked up?"""
        age = time.time() - ZODB.TimeStamp.TimeStamp(tid).timeTime()
        return self._queue_age and age < self._queue_age

    def look_up_invalidations(self, tid, up_to, within=math.inf):
        """The same, read from the storage in a thread for slow calls; None,
        too, if that takes more than so many seconds."""
        ends, oids = time.monotonic() + within, set()
        transactions = iter(self.storage.iterator(tid, up_to))
        if getattr(next(transactions, None), 'tid', None) != tid:
            return None
        for transaction in transactions:
            oids.update(record.oid for record in transaction)
            if len(oids) > MOST_INVALIDATIONS or time.monotonic() > ends:
                return None
        return up_to, list(oids)

    # Statistics

    def status(self):
        """What is counted here, and the storage's own figures."""
        status = self.own_status()
        stats = getattr(self.storage, 'stats', None)
        if stats is not None:
            status['storage'] = {
                name: value.hex() if isinstance(value, bytes) else value
                for name, value in stats().items()}
        return status

    def own_status(self):
        """What is counted here, without a call of the storage."""
        status = vars(self.stats).copy()
        status['connections'] = len(self.sessions)
        status['waiting'] = self.committer.waiting
        status['lock_time'] = self.committer.voted_since()
        status['timeout-thread-is-alive'] = (
            self.committer.is_alive() if self.timeout else 'stub')
        status['last-transaction'] = self.last_tid.hex()
        status['commit-latency'] = self.figures.commit_time.summary()
        status['invalidations'] = self.figures.invalidations
        status['loads-from-memory'] = self.figures.loads_from_memory
        status['loads-from-disk'] = self.figures.loads_from_disk
        status['loads-from-readers'] = self.figures.loads_by_readers
        status['reader-threads-busy'] = self.readers.busy
        status['reader-threads-waiting'] = self.readers.waiting
        if self.handout is not None and self.handout.is_for_clients:
            status['local-clients'] = sum(
                bool(session.reads_locally) for session in self.sessions)
        status['channels'] = self.figures.channels
        status['channel-requests'] = self.figures.requests
        status['channel-bytes-received'] = self.figures.received
        status['channel-bytes-sent'] = self.figures.sent
        return status

    def clients(self):
        """What each client does; for any thread."""
        return Clients(self)

    def histograms(self):
        """The distributions of the durations that `status` sums up."""
        return {'commit_latency': self.figures.commit_time}


def _say_slow(ballot, tid, now):
    """It is committed, its client is about to be told, and that took long."""
    objects = ', '.join(map(oid_repr, ballot.oids[:MOST_NAMED]))
    more = ', ...' if len(ballot.oids) > MOST_NAMED else ''
    logger.warning(
        '%s: the commit %s took %.3f s: waited %.3f s, voted %.3f s, held'
        ' until its client finished it %.3f s, written and synced %.3f s; of'
        ' %s objects: %s%s', ballot.session.log_label, tid.hex(),
        now - ballot.asked_at, ballot.began_at - ballot.asked_at,
        ballot.held_since - ballot.began_at,
        ballot.finish_at - ballot.held_since, now - ballot.finish_at,
        len(ballot.oids), objects, more)
