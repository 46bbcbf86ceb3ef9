"""The sync of the policy `quorum`: what is appended goes to the log and to the
disk at the same time, and is durable when both have it.

A `Replicator` is the replica (commit.replica) of a storage whose node writes.
It is made with a writer that leads, behind all that the log has, for a data
file that has all of it and no more.

A sync, in the thread of the leader (commit.sequencer), with no other beside it
(I9):

1. Offer the bytes behind what the log has, as one batch: send its first chunk.
2. Sync the disk.
3. Read the answer.  The next chunk is sent, and answered, until there is none.

So nothing is offered any more once the disk has failed: what is read back then
may be what it had before.

*No answer*: no majority can be reached, or its answer was lost.  The writer
offers the same record until its fate is known, after a pause that grows.  All
that wait for this sync wait, and nobody else.  After a second, `trouble` says
so, and so does the log when that try is over.

A storage that is closed gives up after some seconds.  Whether the log has the
last batch is then as unknown as after a failed sync.

*An interrupt* leaves a batch that the log may have, or half of it.  The next
sync begins with that batch, as it is, and then offers what is behind it.

Threads: `sync` is called by one at a time, under a lock for which only a
close waits.  A thread of the keeper's (keeping) saves what the node keeps, and
another one ends the wait of a storage that is closed: it asks the log for
nothing, so that nothing holds it up.  What they share are single attributes,
each set by one of them, and an event.
"""

import threading
from collections.abc import Callable
from collections.abc import Sequence

from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.POSException import StorageTransactionError

from ..commit import pipeline
from ..commit.blobs import Stored
from ..commit.replica import NotReplicated
from ..commit.replica import Read
from ..commit.wakeable import WakeableThread
from .batch import Batch
from .fates import Fates
from .keeping import Keeper
from .log import Log
from .log import Unanswered
from .outage import Outage
from .record import Commit
from .writer import Fenced
from .writer import Writer

#: Seconds for which a storage that is closed waits for an answer: as long as
#: an election of the log's leader may take, and not as long as a process is
#: given to end.
LONGEST_WAIT_AT_CLOSE = 5.0
#: Seconds from one look at that to the next.
WATCH_EVERY = 0.25

START_AGAIN = 'start this node again: it will follow, or say why it cannot'


class Replicator:

    #: (One that has the lease has one: primary.)
    instance: bytes | None = None
    _keeper: Keeper | None = None
    _is_closed = False

    def __init__(self, log: Log, writer: Writer,
                 fates: Fates | None = None) -> None:
        """The log is that of the writer, and of nobody else: `close` closes
        it.  The fates are those of all that was in it before this epoch."""
        self._log = log
        self._writer = writer
        self._fates = fates
        self._outage = Outage('commits wait')
        self._stopped = threading.Event()
        self._syncing = threading.Lock()
        self._is_closing = False
        self._watch = WakeableThread(
            'watch over a close', self._give_up_if_late,
            lambda: WATCH_EVERY if self._is_closing else None)

    # The opening

    def begin(self, path: str, end: int, read: Read) -> None:
        state = self._writer.state
        if self._writer.left or state.writer != self._writer.id:
            raise AssertionError(f'{path}: the writer does not lead')
        if end != state.end:
            raise FileStorageError(
                f'{path} ends at {end}, and what the log has of it at'
                f' {state.end}: something has written to it since this node'
                ' has compared the two. Start again: what the log does not'
                f' have will be kept beside it, in {path}.trN')
        self._outage.name = path
        # The epoch is kept before anything of it is.  (It leads, so a majority
        # has its record.)
        self._keeper = Keeper(path, state, read, self._writer.confirm)
        self._keeper.start()
        self._watch.start()

    # A vote

    def stage(self, blobs: Stored) -> None:
        """Here the contents will go to the log, before anything names them.

        (They are not looked at before that: a failed vote costs nothing.)
        """
        raise StorageTransactionError(
            'blobs cannot be stored under durability quorum yet: the other'
            ' nodes would not have them. Nothing of this transaction was'
            ' stored')

    # A sync

    def sync(self, end: int, read: Read, commits: Sequence[pipeline.Commit],
             sync_disk: Callable[[], object]) -> None:
        assert self._keeper is not None
        with self._syncing:
            self._offer(end, read, commits)
            sync_disk()
            while self._writer.left:
                self._wait_for_answer()
                self._offer(end, read, commits)
            self._outage.is_over()
            self._keeper.synced(self._writer.state)

    def _offer(self, end: int, read: Read,
               commits: Sequence[pipeline.Commit]) -> None:
        """Send the next record, if the log does not have all up to there."""
        if self._stopped.is_set():
            raise NotReplicated(
                'it was closed before its log had all',
                'when a node writes again, it goes on from what the log has')
        writer = self._writer
        if not writer.left and writer.state.end < end:
            writer.write(self._batch(end, read, commits))
        self._fenced_or(writer.ask)

    def _batch(self, end: int, read: Read,
               commits: Sequence[pipeline.Commit]) -> Batch:
        """All that the log does not have.

        What an interrupted sync has brought there is among the commits.
        """
        begin = self._writer.state.end
        return Batch(begin, end, read, [
            Commit(commit.id, commit.tid) for commit in commits
            if commit.id is not None and commit.start >= begin])

    def _wait_for_answer(self) -> None:
        """Of one try; if there is none, pause before the next one."""
        self._outage.tries()
        try:
            self._fenced_or(self._writer.answered)
        except Unanswered as error:
            self._stopped.wait(self._outage.pause(error))
        else:
            self._outage.is_over()

    def _fenced_or(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Fenced as error:
            self._outage.is_over()
            raise NotReplicated(_no_more(error), START_AGAIN) from None

    def became_of(self, id: bytes, since: bytes) -> bytes | None:
        if self._fates is None:
            raise LookupError('this node has not followed')
        return self._fates.of(id, since)

    # What is said of it

    def may_answer(self) -> bool:
        return True

    @property
    def trouble(self) -> str | None:
        if self._writer.fenced is not None:
            return _no_more(self._writer.fenced)
        return self._outage.trouble

    def stats(self) -> dict[str, object]:
        state = self._writer.state
        kept = state if self._keeper is None else self._keeper.kept
        return {
            'epoch': state.epoch,
            'sequence': state.place.sequence,
            'kept_sequence': kept.place.sequence,
            'generation': state.generation,
            'fenced': self._writer.fenced,
            'outages': self._outage.number,
            'trouble': self.trouble,
        }

    # The close

    def closing(self) -> None:
        self._is_closing = True
        self._watch.wake()

    def _give_up_if_late(self) -> None:
        if (self._is_closing
                and self._outage.seconds >= LONGEST_WAIT_AT_CLOSE):
            self.stop()

    def keep(self) -> None:
        if self._keeper is not None:
            self._outage.tries()
            self._keeper.save()
            self._outage.is_over()

    def stop(self) -> None:
        self._stopped.set()
        self._log.stop()

    def close(self) -> None:
        self.stop()
        self._watch.close()
        with self._syncing:  # of a committer whose close was interrupted
            if self._keeper is not None:
                self._keeper.close()
            if not self._is_closed:
                self._log.close()
                self._is_closed = True


def _no_more(why: object) -> str:
    return f'its log takes nothing more of this node ({why})'
