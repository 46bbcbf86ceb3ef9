"""The process that scrubs: it verifies the file in its order, for one pass.

Its parent has opened the file, and passes the number of the descriptor.  The
list of reports is in docs/internals/scrub.rst.

What verifies is the walk of format.scan, as in `fsync-check` and in a pack:
damage is what this walk calls damage, and what the disk cannot read.

- The walk reads again what looks damaged.  Before that there is a pause: a
  disk may have had trouble for a moment.
- A tid that does not rise is not damage: the storage opens such a file, with a
  warning.  The scrub counts these transactions.

A pass that was interrupted goes on where the last noted transaction ends, if
that transaction is there, and sound.  Otherwise it begins anew.
"""

import dataclasses
import time
import traceback
from collections.abc import Callable

from ZODB._compat import FILESTORAGE_MAGIC

from ..format import scan
from ..format import seal
from ..format.scan import FIRST
from ..format.window import Window
from ..processes.parent import Message
from ..processes.parent import ParentProcess
from ..processes.parent import serve
from ..processes.rate import Rate
from .fromdisk import FromDisk
from .fromdisk import past_the_cache
from .notes import Pass
from .notes import checked

# A transaction of at most this many bytes is read only once.
WINDOW = 1 << 20
# Seconds between two reports of the progress.
REPORT_EVERY = 1.0

Report = Callable[[Pass, 'scan.Damage | None'], object]


def main(pid: int) -> None:
    serve(pid, _scrub, _failure)


def _scrub(job: Message, parent: ParentProcess) -> Message:

    def report(done: Pass, damage: scan.Damage | None) -> None:
        parent.report({
            'read': dataclasses.asdict(done),
            'damage': None if damage is None else str(damage)})

    def spent(size: int) -> None:
        verifier.has_read()
        rate.spent(size)

    rate = Rate(job['rate'], parent.wait)
    disk = FromDisk(
        past_the_cache(job['file']), spent, job['pause'], parent.wait)
    verifier = Verifier(disk, job['end'], report)
    verifier.verify(checked(job['pass']))
    return {'ended': dataclasses.asdict(verifier.done)}


def _failure(error: Exception) -> Message:
    if isinstance(error, (OSError, seal.UnknownVersion)):
        return {'failed': str(error)}
    return {'failed': traceback.format_exc()}


class Verifier:
    """Verifies the file up to `end`.

    `report` is called with the Pass, and with a Damage or None.
    """

    def __init__(self, disk: FromDisk, end: int, report: Report,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.done = Pass(0)
        self._disk = disk
        self._window = Window(disk, end)
        self._window.SIZE = WINDOW
        self._report = report
        self._clock = clock
        self._report_due = clock()

    def has_read(self) -> None:
        """To be called whenever something was read."""
        now = self._clock()
        if now >= self._report_due:
            self._report_due = now + REPORT_EVERY
            self._report(self.done, None)

    def verify(self, done: Pass) -> None:
        """Go on with this pass, up to the end."""
        self.done = done
        before = self._last_verified()
        if before is None:
            self.done = Pass(int(time.time()))
            self._verify_magic()
        for found in scan.walk(
                self._window, self.done.position, before, self._suspect):
            unreadable = self._unreadable(found)
            if unreadable is not None:
                self._add_damage(scan.Damage(
                    found.position, found.tid, scan.DAMAGED, unreadable))
            elif isinstance(found, scan.Transaction):
                self._add_sound(found)
            elif _is_unordered(found) and found.sound_records is not None:
                self.done.unordered += 1
                self._add_sound(found.sound_records)
            else:
                self._add_damage(found)

    def _last_verified(self) -> scan.Transaction | None:
        """The noted transaction, after which the pass goes on, if it is there.
        """
        found = scan.transaction_before(self._window, self.done.position)
        if found is None or found.tid != self.done.tid.to_bytes(8, 'big'):
            return None
        return found

    def _has_magic(self) -> bool:
        return self._disk(FIRST, 0) == FILESTORAGE_MAGIC

    def _verify_magic(self) -> None:
        if self._has_magic():
            return
        self._disk.pause()
        if not self._has_magic():
            self._add_damage(scan.Damage(
                0, None, scan.DAMAGED, self._disk.unreadable(0, FIRST)
                or 'the file does not begin with the magic of a Data.fs'))

    def _suspect(self, damage: scan.Damage) -> None:
        """This is about to be read again."""
        if not _is_unordered(damage):
            self._disk.pause()

    def _unreadable(self, found: scan.Transaction | scan.Damage) -> str | None:
        """What the disk cannot read of it; there are zeros in its place."""
        if isinstance(found, scan.Transaction) and found.seal != seal.SOUND:
            # Only a seal makes the walk read the data.
            for _ in self._window.pieces(found.position, found.end):
                pass
        return self._disk.unreadable(found.position, found.end)

    def _add_sound(self, found: scan.Transaction) -> None:
        done = self.done
        done.position = found.end
        done.tid = int.from_bytes(found.tid, 'big')
        done.transactions += 1
        done.unsealed += found.seal != seal.SOUND

    def _add_damage(self, damage: scan.Damage) -> None:
        done = self.done
        if (done.last_damaged is not None
                and damage.position <= done.last_damaged):
            return  # it was found before the pass was interrupted
        done.damaged += 1
        done.last_damaged = damage.position
        if done.first_damaged is None:
            done.first_damaged = damage.position
        self._report(done, damage)


def _is_unordered(damage: scan.Damage) -> bool:
    """Is its tid, which does not rise, all that is wrong with it?"""
    return damage.reason.startswith(scan.DOES_NOT_RISE)
