"""Is all well?  What an operator should look at, now or some time.

A verdict is a text with a level, about the present: when the trouble has
ended, the verdict disappears.  The most urgent verdicts come first.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

from ..pack.progress import FAILED
from . import probes
from .past import Past
from .reading import Reading

#: LOOK: look at it some time.  BAD: look at it at once.
LOOK, BAD = 'look', 'bad'

# Seconds that a client may hold objects while others wait.
HELD = 5.0
# From this many seconds on, a sync is too slow.
SLOW = 1.0
# Seconds without a round of the backup that has shipped all there was.
NOT_SHIPPED = 180.0
# If no sync has ended in this many samples of the past, in succession, the
# disk does not answer.
SILENT = 2
# Most characters of a text from elsewhere, such as an error.
_LONGEST = 300


class Verdict(NamedTuple):
    level: str
    words: str


UNREADABLE = Verdict(BAD, 'Its figures cannot be read: see the log.')


def of_process(phase: str, age: float) -> Iterator[Verdict]:
    """`age`: seconds since an event loop has last answered."""
    if age > probes.STUCK_AFTER:
        yield Verdict(
            BAD, f'The server has not answered for {age:.0f} s: something'
            ' keeps its event loop.')
    if phase != probes.SERVING:
        yield Verdict(LOOK, f'The server is {phase}.')


def of_storage(reading: Reading, past: Past) -> list[Verdict]:
    return [*(Verdict(BAD, words) for words in _bad(reading, past)),
            *(Verdict(LOOK, words) for words in _look(reading, past))]


def _bad(reading: Reading, past: Past) -> Iterator[str]:
    stopped = reading.storage.get('writing_stopped')
    if stopped:
        yield f'Nothing can be committed: {_bounded(stopped)}'
    damaged = reading.scrub.get('damaged')
    if damaged:
        yield f'Damaged transactions in the file: {damaged}.'
    waits = reading.quorum.get('trouble')
    if waits and reading.storage:
        yield f'Commits wait: {_bounded(waits)}.'
    if not stopped and not waits and _no_sync_ends(past):
        yield ('The disk does not answer: transactions wait, and no sync'
               ' has ended.')


def _no_sync_ends(past: Past) -> bool:
    waiting = past.last('waiting_for_sync', SILENT)
    return (len(waiting) == SILENT and all(waiting)
            and not any(past.last('syncs', SILENT)))


def _look(reading: Reading, past: Past) -> Iterator[str]:
    if reading.quorum and not reading.storage:
        yield f'Not open: {_bounded(reading.quorum["trouble"])}.'
    since = reading.server.get('lock_time')
    held = 0 if since is None else time.time() - since
    waiting = reading.waiting.get('vote')
    if held > HELD and waiting:
        # (Some may wait for other objects, or for room in memory.)
        yield (f'A client has held objects for {held:.0f} s; commits that'
               f' wait: {waiting}.')
    slowest = past.last('sync_p99', 1)
    if slowest and slowest[0] is not None and slowest[0] >= SLOW:
        yield f'Syncs take long: {slowest[0]:.1f} s.'
    shipped = reading.backup.get('shipped')
    if shipped is not None and time.time() - shipped > NOT_SHIPPED:
        yield (f'The backup has shipped nothing for'
               f' {time.time() - shipped:.0f} s.')
    last_pack = reading.packs.get('last')
    if last_pack and last_pack['outcome'] == FAILED:  # nobody cancelled it
        yield 'The last pack failed: see the log.'
    # (A pack interrupts it once.)
    interrupted = reading.scrub.get('interrupted', 0)
    if interrupted > 1:
        why = reading.scrub.get('interrupted_because')
        yield (f'The scrub was interrupted {interrupted} times:'
               f' {_bounded(why)}')


def _bounded(words: object) -> str:
    text = str(words)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + ' ...'
