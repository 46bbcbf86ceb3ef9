"""The role of a node: from its start until it leads.

A `Node` stands in for its storage until that can be opened.  `opened` returns
the storage when this node leads, however long that takes.  So whatever needs
an open storage, such as a server that opens its port, is done by the node that
leads.

A thread goes through these roles, while the thread that opens the storage
waits (storage.host):

starting     the node brings its file to the end of the log (rejoin), and makes
             sure that its name is its own (log.notes)
standby      it follows (standby), and asks for the lease (holding), except
             while it is in trouble, or replaces its file by a packed one,
             which may take as long as a pack
taking over  it has the lease: it reads to the head, and leads (takeover).  If
             the lease is lost before that, or its pack is late for a swap, it
             is a standby again
primary      the storage is open, and its replica (primary) knows of the lease

A standby that was misled by a member of the log, and a node that cannot get to
the head, gives the lease back if it has it, and begins anew with what it has
kept.

There is no way back: a primary that is to follow again begins anew, in another
process or by `exec`, without any state of the former one.

From its start to its end, a node probes its disk (probing), and says in the
log how it is (presence).

The standby, the writer and the lease each have a log of their own, because
`stop` ends a log for good.
"""

import contextlib
import errno
import logging
import os
import tempfile
import threading
import typing
from collections.abc import Callable

from ...storage import host as hosts
from ...storage.opening import Opened
from ...storage.storage import FsyncStorage
from ..following import repacking
from ..following.follower import Follower
from ..following.rejoin import rejoin
from ..following.standby import Standby
from ..history.record import Place
from ..history.record import node_name
from ..leading.loglimit import Trims
from ..log.interface import Log
from ..log.notes import Author
from ..log.outage import LONGEST_PAUSE
from ..log.outage import Outage
from ..log.outage import Patience
from ..log.reading import Refused
from .holding import Holding
from .holding import name_of_process
from .presence import OF_THE_LEASE
from .presence import Presence
from .primary import Primary
from .probing import Probing
from .takeover import lead

logger = logging.getLogger(__name__)

STARTING, STANDBY, TAKING_OVER = 'starting', 'standby', 'taking over'

#: Seconds between two checks of the standby.
LOOK_EVERY = 0.25


class Setup(typing.NamedTuple):
    """The settings of a node, and of its log."""

    #: Its name: no two nodes of a log have the same.
    node: str
    #: The time of the lease, in seconds.
    lease: float
    #: Raises StorageError if the log cannot be used.
    open_log: Callable[[], Log]
    #: Raises StorageError if no node should rely on the log; Unanswered.
    check: Callable[[Log], object] = lambda log: None
    #: How many seconds a node that leads waits for its disk, if another one
    #: could lead; None: for the time of the lease.
    disk_patience: float | None = None
    #: The most bytes of the log, or 0; and whether a node that is behind is
    #: left behind when the log has as many (loglimit).
    log_limit: int = 0
    drops: bool = False

    @property
    def trims(self) -> Trims:
        return Trims(node_name(self.node), self.log_limit, self.drops)

    @property
    def patience(self) -> float:
        return self.lease if self.disk_patience is None else self.disk_patience


class _Stopped(Exception):
    """The node was closed before it leads."""


class _Misled(Exception):
    """The standby has applied what only one member has."""


class Node:

    def __init__(self, path: str, setup: Setup, index_every: int,
                 packs: repacking.Options, blob_dir: str | None,
                 host: hosts.Host) -> None:
        self._path = path
        self._setup = setup
        self._index_every = index_every
        self._packs = packs
        self._blob_dir = blob_dir
        self._host = host
        self.role = STARTING
        #: Set when it leads, or has failed.
        self.is_done = threading.Event()
        self._failure: BaseException | None = None
        #: Why it begins anew, while it does so.
        self._why_anew: str | None = None
        self._led: tuple[Opened, Primary] | None = None
        self._stopping = threading.Event()
        #: Set when the thread may have something to do.
        self._woken = threading.Event()
        self._log: Log | None = None
        #: The place that it has kept, once it has begun.
        self._place: Callable[[], Place]
        probing = Probing(
            filter(None, (os.path.dirname(os.path.abspath(path)), blob_dir)),
            [tempfile.gettempdir()], OF_THE_LEASE * setup.lease)
        self._holding = Holding(
            setup.open_log(), name_of_process(setup.node), setup.lease,
            self._woken.set, probing.works_since,
            lambda: self._presence.why_it_should_give_way)
        self._presence = Presence(
            self._holding.log, setup.lease, setup.patience, probing,
            self._said, self._of_pack)
        self._standby: Standby | None = None
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f'role of {setup.node}')

    def start(self) -> None:
        self._presence.probing.start()
        self._thread.start()

    def led(self) -> tuple[Opened, Primary]:
        """What a storage is opened with; call it when `is_done` is set."""
        if self._failure is not None:
            raise self._failure
        assert self._led is not None
        return self._led

    def close(self) -> None:
        """Close everything, also what it has led with.  May be repeated."""
        self._stopping.set()
        self._woken.set()
        # In reverse, and each one even if another raises.
        with contextlib.ExitStack() as stack:
            stack.callback(self._presence.close)
            stack.callback(self._holding.close)
            stack.callback(self._close_led)
            if self._thread.ident is not None:
                stack.callback(self._thread.join)
            if (log := self._log) is not None:
                stack.callback(log.stop)

    def _close_led(self) -> None:
        if self._led is not None:
            opened, primary = self._led
            with contextlib.ExitStack() as stack:  # in reverse
                stack.callback(opened.lock_file.close)
                stack.callback(opened.file.close)
                # An error may keep it open for longer.
                stack.callback(opened.file.unlock)
                stack.callback(primary.close)

    # What others may know of it

    @property
    def _could_lead(self) -> bool:
        """(A node whose pack is late may need as long as that.)"""
        standby = self._standby
        return (self.role == STANDBY and standby is not None
                and standby.has_caught_up and standby.trouble is None
                and not standby.follower.waits_for_its_pack)

    @property
    def _wants_the_lease(self) -> bool:
        """(A damaged node leaves the lease to one that is sound.)"""
        standby = self._standby
        return self._could_lead and (
            standby is None or standby.damage is None
            or not self._presence.another_could_lead)

    @property
    def why_not_following(self) -> str | None:
        """Nobody should rely on it, for example to end the node that leads."""
        standby = self._standby
        if self.role == STANDBY and standby is not None and (
                standby.has_caught_up):
            return (standby.why_not_ready or self._holding.trouble
                    or self._presence.disk_trouble)
        return self.trouble

    def _said(self) -> tuple[Place, bool, str]:
        """What its note says."""
        if self._led is not None:
            _, primary = self._led
            return self._place(), False, (
                primary.trouble or primary.damage or '')
        standby = self._standby
        could_lead = self._could_lead and self.why_not_following is None
        return self._place(), could_lead, (
            self._why_anew or (standby and standby.why_not_ready) or '')

    def _of_pack(self) -> tuple[int, bytes]:
        standby = self._standby
        return (0, b'') if standby is None else standby.follower.pack_said

    @property
    def trouble(self) -> str:
        standby = self._standby
        if self.role != STANDBY or standby is None:
            words = [f'this node is {self.role}', self._why_anew]
        else:
            lag = standby.lag
            words = [f'this node is a standby, {lag.records} records and'
                     f' {lag.bytes} bytes behind the log',
                     standby.why_not_ready]
        if self._holding.trouble is not None:
            words.append(f'no answer about the lease: {self._holding.trouble}')
        words.append(self._presence.disk_trouble)
        return ': '.join(filter(None, words))

    def stats(self) -> dict[str, object]:
        figures: dict[str, object] = {
            'role': self.role, 'node': self._setup.node,
            'trouble': self.trouble, 'lease_trouble': self._holding.trouble}
        standby = self._standby
        if standby is not None:
            state, lag = standby.state, standby.lag
            figures.update(
                epoch=state.epoch, sequence=state.place.sequence,
                generation=state.generation, lag_records=lag.records,
                lag_bytes=lag.bytes,
                seconds_without_contact=standby.seconds_without_contact)
        return figures

    # The thread

    def _run(self) -> None:
        try:
            self._led = self._until_it_leads()
        except BaseException as error:  # `led` raises it
            self._failure = error
        finally:
            self.is_done.set()

    def _until_it_leads(self) -> tuple[Opened, Primary]:
        patience = Patience(
            Outage('this start waits', self._path), self._stopping)
        with contextlib.closing(self._open_log()) as log:
            patience.answer(self._setup.check, log)
        follower = self._begin()
        with contextlib.ExitStack() as stack:
            stack.callback(follower.log.close)
            stack.callback(follower.close)
            author = Author(
                node_name(self._setup.node), follower.identity)
            patience.answer(author.claim, follower.log, follower.noted)
            self._place = lambda: follower.noted
            self._holding.start()
            self._presence.start(author)
            stack.pop_all()
        while True:
            try:
                found = self._take_over(self._follow(follower))
            except _Misled as error:
                found = self._begin(error)
            if not isinstance(found, Follower):
                return found
            follower = found

    def _open_log(self) -> Log:
        log = self._log = self._setup.open_log()
        if self._stopping.is_set():
            log.stop()
        return log

    def _begin(self, error: Exception | None = None) -> Follower:
        """With what is kept; after an error, as what was applied may come from
        one wrong member.  A disk that is full is retried."""
        self.role = STARTING
        self._holding.give_up()
        with contextlib.ExitStack() as stack:
            log = self._open_log()
            stack.callback(log.close)
            while True:
                if error is not None and self._why_anew is None:
                    logger.warning(
                        '%s: this node begins anew with what it has kept: %s',
                        self._setup.node, error)
                self._why_anew = None if error is None else str(error)
                try:
                    follower = rejoin(self._path, log, self._stopping,
                                      self._packs, self._blob_dir)
                except OSError as again:
                    if again.errno not in (errno.ENOSPC, errno.EDQUOT):
                        raise
                    error = again
                else:
                    break
                if self._stopping.wait(LONGEST_PAUSE):
                    raise _Stopped from error
            self._why_anew = None
            stack.pop_all()
        return follower

    def _follow(self, follower: Follower) -> Follower:
        """Follow until this node has the lease; then close the log."""
        standby = Standby(follower, self._index_every, self._woken.set)
        with contextlib.ExitStack() as stack:
            stack.callback(follower.log.close)
            stack.callback(standby.close)
            standby.start()
            self._place = lambda: standby.follower.noted
            self._standby, self.role = standby, STANDBY
            logger.info('%s: this node follows', self._setup.node)
            # (What it may still have is given back.)
            self._holding.seek(self._wants_the_lease)
            while self._holding.tenure is None:
                self._look_at(standby)
                self._woken.wait(LOOK_EVERY)
                self._woken.clear()
            standby.stop()
            self._look_at(standby)
            standby.follower.log.close()
            stack.pop_all()
        return standby.follower

    def _take_over(self, follower: Follower
                   ) -> tuple[Opened, Primary] | Follower:
        """The result of leading; or a node that has to follow, if the lease
        was lost, or its pack is late.  If it fails, nothing stays open."""
        self.role = TAKING_OVER
        with contextlib.ExitStack() as stack:
            stack.callback(follower.close)
            log = self._open_log()
            stack.callback(log.close)
            try:
                writer = lead(follower, log, node_name(self._setup.node),
                              lambda: self._holding.is_believed,
                              self._stopping)
            except (Refused, OSError) as error:
                follower.close()
                return self._begin(error)
            found: tuple[Opened, Primary] | Follower = follower
            if writer is not None:
                primary = Primary(
                    log, writer, self._setup.trims,
                    self._holding, self._presence, self._setup.node,
                    self._host)
                before = follower.kept.place
                found = follower.hand_over(writer.state.epoch), primary
                self._place = lambda: (
                    primary.kept.place if primary.keeps else before)
            stack.pop_all()
        return found

    def _look_at(self, standby: Standby) -> None:
        if self._stopping.is_set():
            raise _Stopped
        if standby.is_misled:
            raise _Misled(standby.ended)
        for ended in standby.ended, self._presence.taken:
            if ended is not None:
                raise Refused(ended)
        self._holding.ask_if(self._wants_the_lease)


def opened(path: str, setup: Setup, index_every: int,
           make: Callable[[Primary, Opened], FsyncStorage],
           show: Callable[[Node], object] = lambda node: None,
           packs: repacking.Options = repacking.USUAL,
           blob_dir: str | None = None,
           host: hosts.Host | None = None) -> FsyncStorage:
    """The storage of this node, once it leads.

    `make` opens it.  `show` is called with the node before there is a storage.
    `packs` says how a node that follows packs, and `blob_dir` where its blobs
    are.
    """
    host = host or hosts.host()
    node = Node(path, setup, index_every, packs, blob_dir, host)
    storage = None
    try:
        node.start()
        show(node)
        host.wait(node.is_done, node)
        opened, primary = node.led()
        storage = make(primary, opened)
        primary.serve(storage)
    except BaseException:
        try:
            if storage is not None:
                storage.close()
        finally:
            node.close()
        raise
    return storage
