"""The start of a node: it brings its file to the end of the log.

The steps are those of docs/internals/quorum.rst, "Start and rejoin".  Whatever
is refused is refused before anything is changed.  Then the file is cut where
the node has kept it, and what the log has is written after that: a power cut
may have kept a block there and lost an earlier one.

A start that is interrupted at any moment can be repeated: the file is then
what was kept, plus a part of what the log says.
"""

import contextlib
import logging
import os
import threading
import typing
from collections.abc import Iterator

from ... import datafile
from ...format import seal
from ...format.window import Window
from ...pack import packedblobs
from ...pack.agreed import Becoming
from ...storage import leftovers
from ...storage import opening
from ...storage import recovery
from ..files import state as states
from ..files import unfinished
from ..files.newblobs import FoundLists
from ..files.state import Kept
from ..files.unfinished import Swap
from ..history.fold import State
from ..history.fold import Why
from ..history.record import Damaged
from ..history.record import PackSwap
from ..log.interface import Log
from ..log.outage import Outage
from ..log.outage import Patience
from ..log.reading import ANEW
from ..log.reading import WHAT_TO_DO
from ..log.reading import Reader
from ..log.reading import Refused
from . import evidence
from . import repacking
from .fetching import Fetching
from .fetching import refuse_without
from .follower import Follower
from .indexing import Indexing
from .repacking import Late
from .spool import Spool
from .spool import with_spool

logger = logging.getLogger(__name__)

# What was applied is kept after each `KEPT_AFTER` bytes, so that a start that
# was interrupted does not begin anew.
KEPT_AFTER = 64 << 20
# Seconds that a start waits at a swap for the pack of this node.
LONGEST_WAIT = 10.0


class Surveyed(typing.NamedTuple):
    """What the log has, up to its end."""

    state: State
    #: Where the file that was kept ends, according to the log: at the first
    #: swap, if there is one.
    end: int
    swap: Swap | None


def rejoin(path: str, log: Log, stopping: threading.Event,
           packs: repacking.Options = repacking.USUAL,
           blob_dir: str | None = None) -> Follower:
    """Bring the file and its blobs to the end of the log, and keep that.

    While the log does not answer, it waits, until `stopping` is set; then it
    raises Unanswered.  Raise Refused if this node cannot follow.

    If the log is refused, all is done once more, from the next member: one
    may have shown what the others do not have.
    """
    opening.checked(path, False, False, None)
    leftovers.refuse_second_names(path)
    patience = Patience(Outage('this start waits', path), stopping)
    for _ in range(log.members):
        try:
            return _rejoined(path, log, packs, blob_dir, patience)
        except Refused as error:
            if error.why is None:  # our own files are refused
                raise
            refused = error
            log.turn()
    raise refused


def _rejoined(path: str, log: Log, packs: repacking.Options,
              blob_dir: str | None, patience: Patience) -> Follower:
    with contextlib.ExitStack() as stack:
        stack.enter_context(seal.naming(path))
        lock_file = opening.lock_name(path)
        stack.callback(lock_file.close)
        kept = found = _kept(path)
        spool = Spool(path, found.state.log)
        spool.kept(found.state.place)
        stack.callback(spool.close)
        log = with_spool(log, spool)
        lists = FoundLists(path, blob_dir)
        if found.becoming is not None:
            with _nothing_was_changed():
                kept = _settled(
                    path, log, found, patience, lists, packs.keep_old)
        file = stack.enter_context(_open(path))
        stack.callback(file.unlock)  # an error may keep it open for longer
        is_swapped = kept.state.generation != found.state.generation
        with contextlib.nullcontext() if is_swapped else (
                _nothing_was_changed()):
            _refuse_another_file(file, kept)
            surveyed = _survey(log, kept.state, patience, lists)
            indexing = Indexing(file, kept.state.end)
            _refuse_a_lost_log(file, kept, surveyed.end)
        _cut(file, kept.state.end)
        blobs = None
        if blob_dir is not None:
            blobs = Fetching(path, blob_dir)
            lists.remove_files(blobs.helper, kept.tie.tid)
        if kept is not found:
            states.save(path, kept.state, states.reading(file), kept.node)
            unfinished.remove_what_is_left(path)
        if blobs is not None:
            packedblobs.take_up(packedblobs.BlobDirectory(
                blobs.blob_dir, blobs.helper, packs.keep_old), path,
                links=False)
        follower = Follower(
            lock_file, file, kept, indexing, log, packs, spool, blobs)
        stack.callback(follower.close)
        if _catch_up(follower, log, surveyed, patience):
            lists.remove()
        stack.pop_all()
    return follower


# Which file it is

def _kept(path: str) -> Kept:
    """What this node has kept."""
    try:
        kept = states.load(path)
    except Damaged as error:
        raise Refused(
            f'{error}. Without it, a log that was restored could not be told'
            f' from the right one. Nothing was changed; {ANEW}') from error
    if kept is None:
        raise Refused(
            f'{path} is not a file of a node: there is no'
            f' {path}{states.SUFFIX}. Nothing was changed. A log is begun, and'
            ' a node joins it, by fsync-quorum bootstrap')
    return kept


def _settled(path: str, log: Log, kept: Kept, patience: Patience,
             lists: FoundLists, keep_old: bool) -> Kept:
    """What was kept of the file that has the name, after a swap was begun."""
    swap = _survey(log, kept.state, patience, lists).swap
    return unfinished.settled(path, kept, swap, keep_old)


def _open(path: str) -> datafile.DataFile:
    try:
        file = datafile.open_existing(path)
    except FileNotFoundError as error:
        raise Refused(
            f'{path} is missing, and there is {path}{states.SUFFIX}: a'
            ' database was here. Nothing was changed. Put the file back; or'
            f' {ANEW}') from error
    file.name = os.path.abspath(path)
    return file


@contextlib.contextmanager
def _nothing_was_changed() -> Iterator[None]:
    """A context: adds to each refusal that nothing was changed."""
    try:
        yield
    except Refused as error:
        raise Refused(f'{error}. Nothing was changed', error.why) from error


def _refuse_another_file(file: datafile.DataFile, kept: Kept) -> None:
    """Refuse a file that is not the one that was kept, or lacks some of it."""
    opening.lock(file)
    opening.check_magic(file, read_only=True)
    misfit = states.misfit(kept, states.reading(file), file.size())
    if misfit is not None:
        raise Refused(
            f'{file.name} is not the file that {file.name}{states.SUFFIX} is'
            f' about: {misfit}. Put the right file there, with what was kept'
            f' beside it; or {ANEW}')


# What the log has

def _survey(log: Log, state: State, patience: Patience,
            lists: FoundLists) -> Surveyed:
    """Read the log to its end; write nothing."""
    end, swap = state.end, None
    lists.begin()
    for behind, record in Reader(log, state).to_the_end(patience):
        refuse_without(lists.blob_dir, record)
        lists.look_at(behind, record)
        body = record.body
        if isinstance(body, PackSwap) and swap is None:
            swap = Swap(Becoming(body.size, body.checksum), behind)
        state = behind
        if swap is None:
            end = state.end
    return Surveyed(state, end, swap)


def _refuse_a_lost_log(file: datafile.DataFile, kept: Kept,
                       log_end: int) -> None:
    """Refuse a log that lacks what this node knows to have been in it."""
    window = Window.of_file(file.fileno())
    evidence.refuse_other_releases(window, kept.state.end, kept.tie.tid)
    durable = evidence.durable_end(window, kept.state.end, kept.tie.tid)
    if durable > log_end:
        raise Refused(
            f'{file.name}: the log ends at {log_end} of the file, and what the'
            f' file has behind that shows that all before {durable} had been'
            f' confirmed. {WHAT_TO_DO[Why.BEHIND]}')


# What is changed

def _cut(file: datafile.DataFile, end: int) -> None:
    """Cut the file to the end that was kept; keep what is cut off beside it.
    """
    size = file.size()
    if size > end:
        where = recovery.keep_tail(
            file, end, size, f'goes on behind {end}, the last place that this'
            ' node knows to be in the log')
        logger.warning(
            '%s: cut off %d bytes behind %d, the last place that this node'
            ' knows to be in the log; what the log has there is written again.'
            ' They are kept in %s', file.name, size - end, end, where)
        file.truncate(end)
        file.sync()


def _catch_up(follower: Follower, log: Log, surveyed: Surveyed,
              patience: Patience) -> bool:
    """Apply what was surveyed, read once more; false if it does not come so
    far, since its pack is late: then a standby goes on."""
    last = surveyed.state.place.sequence
    for applied in Reader(log, follower.state).to_the_end(patience):
        if applied.state.place.sequence > last:
            break
        try:
            patience.answer(follower.apply, applied, LONGEST_WAIT)
        except Late:
            break
        whole, kept = follower.whole, follower.kept
        if (whole.generation != kept.generation
                or whole.end > kept.end + KEPT_AFTER):
            follower.sync()
            patience.answer(follower.save)
    follower.sync()
    patience.answer(follower.save)
    return follower.state.place.sequence >= last
