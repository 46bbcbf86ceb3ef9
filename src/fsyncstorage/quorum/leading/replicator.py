"""The sync of the policy `quorum`: what is appended goes to the log and to the
disk in parallel, and is durable when both have it.

A `Replicator` is the replica (commit.replica) of a storage whose node writes.
It is made with a writer that leads, and has applied all that the log has, for
a data file that has exactly the same.  A sync

1. offers the bytes that the log does not have yet, as one batch: it sends the
   first chunk;
2. syncs the disk;
3. reads the answer, and then sends each further chunk.

So nothing more is offered once the disk has failed: what is read back then may
be what the disk had before.  While no majority answers, the same record is
offered again and again, and nothing else.  An interrupt leaves a batch that
the log may have, or half of it; the next sync completes that as it is.

*Records that are no batch* are brought into the log between two syncs (`say`):
the records of packs, and Trims (trimming).

Threads: one at a time calls `sync` (I9).  `sync` and `say` take a lock, for
which a close waits, too; another thread ends their wait when the storage is
closed, and never asks the log, so that nothing holds it up.

The order of the locks is: the append lock, which the caller of a swap holds;
the lock of the syncs; the lock of what is kept (keeping).  No thread waits for
one of them while it holds a later one.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

from ZODB.FileStorage.FileStorage import FileStorageError

from ...commit import pipeline
from ...commit.blobs import Stored
from ...commit.replica import NotReplicated
from ...commit.replica import Read
from ...commit.replica import Replica
from ...commit.wakeable import WakeableThread
from ...errors import LeaderChanged
from ...errors import OutcomeUnknown
from ...pack.agreed import VERSION
from ...pack.agreed import Becoming
from ..history.batch import Batch
from ..history.fold import Pack
from ..history.fold import State
from ..history.record import PackBegin
from ..history.record import PackEnd
from ..history.record import PackSwap
from ..history.record import Trim
from ..log.interface import Log
from ..log.interface import Unanswered
from ..log.notes import Author
from ..log.outage import Outage
from .held import Earlier
from .keeping import Keeper
from .loglimit import LogLimit
from .loglimit import Trims
from .staging import Staging
from .tidying import Tidying
from .trimming import Trimming
from .writer import Fenced
from .writer import Writer

#: Seconds for which a storage that is closed waits for an answer: as long as
#: an election of the log's leader may take, but less than the time that a
#: process is given to end.
LONGEST_WAIT_AT_CLOSE = 5.0
#: Seconds from one check of that time to the next.
WATCH_EVERY = 0.25

#: A record that says nothing: if it gets into the log, this node leads.
NOTHING = Trim(1)

START_AGAIN = 'start this node again: it will follow, or say why it cannot'


class Replicator(Replica):

    _keeper: Keeper | None = None
    _is_closed = False
    #: Why nothing more is offered, once `_stopped` is set.
    _why = 'it was closed before its log had all'

    def __init__(self, log: Log, writer: Writer,
                 trims: Trims | None = None) -> None:
        """The log is that of the writer, and is used by nobody else: `close`
        closes it.  Without `trims`, the log is not trimmed."""
        self._log = log
        self._writer = writer
        self._outage = Outage('commits wait')
        self._trims = trims
        self._limit = LogLimit(0 if trims is None else trims.limit,
                               writer.held, Earlier(log))
        self._staging = Staging(
            log, writer, self._limit, self._refuse_when_stopped,
            lambda: self._tidying.wake())
        self._tidying = Tidying(log, self._limit, self._staging)
        self._stopped = threading.Event()
        self._syncing = threading.Lock()
        #: The pack that is under way, and the state after its swap.
        self._pack: Pack | None = None
        self._swapped: State | None = None
        self.pack_hooks = self
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
        # The epoch is kept before any record after it.
        self._keeper = Keeper(path, state, read)
        self._keeper.start()
        self._watch.start()
        self._limit.begin(path, state.place)
        self._staging.begin(path)
        trims = self._trims
        self._tidying.begin(path, state, None if trims is None else Trimming(
            path, self._log, Author(trims.node, self._keeper.identity),
            self.say, trims.drops, self._limit))

    # A vote

    def may_write(self, size: int = 0) -> None:
        why = self._why_no_more
        if why is not None:
            raise LeaderChanged(f'{why}. Nothing of this transaction was'
                                ' stored; the node that leads takes it')
        self._limit.check(size)

    @property
    def _why_no_more(self) -> str | None:
        """Why this node does not write any more, if it does not."""
        fenced = self._writer.fenced
        return None if fenced is None else _no_more(fenced)

    def keep_blobs(self, blobs: Stored) -> None:
        assert self._keeper is not None
        self._limit.check_blobs(sum(map(os.path.getsize, blobs.files())))
        self._staging.kept(self._keeper.kept.place.sequence)
        self._staging.stage(blobs)

    # A sync

    def sync(self, end: int, read: Read, commits: Sequence[pipeline.Commit],
             sync_disk: Callable[[], object]) -> None:
        assert self._keeper is not None
        self._limit.wait_to_sync(self._refuse_to_wait, self._stopped.wait)
        with self._syncing:
            try:
                if end <= self._writer.state.end and not self._writer.left:
                    # It is asked for to know whether this node still leads.
                    self._fenced_or(self._writer.say, NOTHING)
                self._fenced_or(self._offer, end, read, commits)
                sync_disk()
                while self._writer.left:
                    self._fenced_or(self._wait_for_answer)
                    self._fenced_or(self._offer, end, read, commits)
            except NotReplicated:
                raise
            except Exception as error:  # of a sync, or of what was read back
                self._offer_no_more(f'a sync of the disk has failed ({error})')
                raise
            self._outage.answered()
            state = self._writer.state
            self._staging.is_in_the_log(
                filter(None, (commit.in_log for commit in commits)),
                state.place.sequence)
            self._keeper.synced(state)

    def _refuse_to_wait(self) -> None:
        self._refuse_when_stopped()
        self._fenced_or(self._writer.refuse_if_fenced)

    def _offer(self, end: int, read: Read,
               commits: Sequence[pipeline.Commit]) -> None:
        """Send the next record, if the log does not have all up to `end`."""
        self._refuse_when_stopped()
        writer = self._writer
        if not writer.left and writer.state.end < end:
            writer.write(self._batch(end, read, commits))
        writer.ask()

    def _refuse_when_stopped(self) -> None:
        if self._stopped.is_set():
            raise NotReplicated(
                self._why,
                'when a node writes again, it goes on from what the log has')

    def _batch(self, end: int, read: Read,
               commits: Sequence[pipeline.Commit]) -> Batch:
        """All that the log does not have.

        (`commits` may include some that an interrupted sync has brought in.)
        """
        begin = self._writer.state.end
        ours = [commit for commit in commits if commit.start >= begin]
        return Batch(
            begin, end, read,
            [blob for commit in ours if commit.in_log is not None
             for blob in commit.in_log.named(commit.tid)])

    def _wait_for_answer(self) -> None:
        """Read the answer of one try; if there is none, pause before the next.
        """
        self._outage.tries()
        try:
            self._writer.answered()
        except Unanswered as error:
            self._stopped.wait(self._outage.pause(error))
        except Fenced:
            self._outage.answered()
            raise
        else:
            self._outage.answered()

    def _fenced_or(self, step: Callable[..., object], *args: object) -> None:
        try:
            step(*args)
        except Fenced as error:
            raise NotReplicated(_no_more(error), START_AGAIN) from None

    # Records that are no batch

    def say(self, body: PackBegin | PackEnd | PackSwap | Trim) -> State:
        """Bring this record into the log; return the state after it.

        Raise Fenced if it is not there, and never will be; NotReplicated if
        the storage is closed, or a sync has failed, before that is known.
        """
        with self._syncing:
            self._bring_in()
            self._refuse_when_stopped()
            self._writer.say(body)
            self._bring_in()
            self._keep_behind()
            return self._writer.state

    def _keep_behind(self) -> None:
        """Keep the record that was said, if it follows right after what is
        synced: then the log need not keep the batch before it for us."""
        assert self._keeper is not None
        state, latest = self._writer.state, self._keeper.latest
        if (state.end, state.generation) == (latest.end, latest.generation):
            self._keeper.synced(state)

    def _bring_in(self) -> None:
        """Bring in what was begun, or what an interrupt has left of it."""
        while self._writer.left:
            self._refuse_when_stopped()
            self._writer.ask()
            self._wait_for_answer()

    # A pack: what it tells the other nodes, and when (pack.agreed.Hooks)

    def begins(self, stop: bytes, collects_garbage: bool) -> int:
        with told():
            self._pack = self.say(
                PackBegin(stop, collects_garbage, VERSION)).pack
        assert self._pack is not None
        return self._pack.end

    def ready(self, part: bytes, look: Callable[[], object]) -> None:
        """(A primary knows of other nodes.)"""

    def swaps(self, becoming: Becoming) -> None:
        """What the file becomes is kept first, then the PackSwap is offered,
        and then there is no way back: while nobody knows whether that record
        is in the log, nothing may be appended to the old file.  If that cannot
        be found out (the storage is closed, an interrupt), nothing more is
        offered to the log, and the next start asks the log (unfinished)."""
        assert self._pack is not None and self._keeper is not None
        with told(), self._syncing:
            self._bring_in()
            self._refuse_when_stopped()
            self._keeper.save_becoming(self._writer.state, becoming)
        try:
            self._swapped = self.say(PackSwap(self._pack.id, *becoming))
        except Fenced as error:
            raise _not_told(error) from error
        except Exception as error:
            raise OutcomeUnknown(
                f'whether the log has the swap of a pack is not known'
                f' ({error}): the next start of this node finds out'
            ) from error
        finally:
            if self._swapped is None:
                self._offer_no_more(
                    'a pack could not tell the other nodes that it replaces'
                    ' the file')

    def over(self, swapped: bool) -> None:
        pack, state = self._pack, self._swapped
        self._pack = self._swapped = None
        assert pack is not None and self._keeper is not None
        if not swapped:
            self._keeper.stays()
            self.say(PackEnd(pack.id))
            return
        assert state is not None
        with self._syncing:
            # (A sync of later commits may already have kept a later state.)
            if self._keeper.latest.generation < state.generation:
                self._keeper.synced(state)
        self._keeper.save()

    def _offer_no_more(self, why: str) -> None:
        self._why = why
        self._stopped.set()

    # What others may know of it

    def may_answer(self) -> bool:
        return True

    @property
    def keeps(self) -> bool:
        """Has it saved a state of its own?"""
        return self._keeper is not None

    @property
    def kept(self) -> State:
        """The state from which a start of this node would go on."""
        return self._writer.state if (
            self._keeper is None) else self._keeper.kept

    @property
    def trouble(self) -> str | None:
        return (self._why_no_more or self._outage.trouble
                or self._limit.trouble or self._staging.trouble)

    def stats(self) -> dict[str, object]:
        state = self._writer.state
        return {
            'epoch': state.epoch,
            'sequence': state.place.sequence,
            'kept_sequence': self.kept.place.sequence,
            'seconds_without_contact': self._outage.seconds,
            'log_size': self._limit.size,
            'log_limit': self._limit.limit,
            'generation': state.generation,
            'fenced': self._writer.fenced,
            'outages': self._outage.number,
            'trouble': self.trouble,
        }

    # The close

    def closing(self) -> None:
        self._is_closing = True
        self._watch.wake()
        self._staging.closing()

    def _give_up_if_late(self) -> None:
        if self._is_closing and max(
                self._outage.seconds,
                self._limit.seconds_of_commits) >= LONGEST_WAIT_AT_CLOSE:
            self.stop()

    def keep(self) -> None:
        """Save what the node keeps, unless nothing more is to be asked."""
        if self._keeper is not None and not self._stopped.is_set() and (
                self._why_no_more is None):
            self._keeper.save()
            self._staging.kept(self._keeper.kept.place.sequence)

    def keep_up_to(self, end: int) -> None:
        assert self._keeper is not None
        self._keeper.save()
        if self._keeper.kept.end < end:
            raise OSError('what the log has of it could not be saved')

    def stop(self) -> None:
        self._stopped.set()
        self._log.stop()

    def close(self) -> None:
        # In reverse, and each one even if another raises.
        with contextlib.ExitStack() as stack:
            stack.callback(self._close_log)
            stack.callback(self._tidying.close)
            stack.callback(self._staging.close)
            stack.callback(self._watch.close)
            stack.callback(self.stop)
            stack.callback(self.keep)

    def _close_log(self) -> None:
        with self._syncing:  # a committer's close may have been interrupted
            if self._keeper is not None:
                self._keeper.close()
            if not self._is_closed:
                self._log.close()
                self._is_closed = True


@contextlib.contextmanager
def told() -> Iterator[None]:
    """A context: what ends this writer ends a pack of which the other nodes
    were not told."""
    try:
        yield
    except (Fenced, NotReplicated) as error:
        raise _not_told(error) from error


def _not_told(error: Exception) -> FileStorageError:
    return FileStorageError(
        f'the other nodes could not be told of the pack ({error}). It was'
        ' given up, and nothing was changed')


def _no_more(why: object) -> str:
    return f'its log takes nothing more of this node ({why})'
