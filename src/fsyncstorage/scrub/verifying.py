"""One pass: reads the file in its order, and verifies each transaction.

What counts as damage is what the walk of format.scan says of a transaction, as
in `fsync-check` and in a pack, and what the disk cannot read.  A transaction
with a seal is verified as a whole; of one without, only the structure is.

A pass that was interrupted goes on where a sound transaction ends, if the one
that was noted is there.  Otherwise it begins anew.
"""

import time
from collections.abc import Callable

from ZODB._compat import FILESTORAGE_MAGIC

from ..format import scan
from ..format import seal
from ..format.scan import FIRST
from ..format.window import Window
from .fromdisk import FromDisk
from .notes import Pass

# A transaction of up to so many bytes is read once.
WINDOW = 1 << 20
# Seconds between two reports of how far it is.
REPORT_EVERY = 1.0

Report = Callable[[Pass, 'scan.Damage | None'], object]


class Verifier:
    """`report` is called with the Pass, and with a Damage or None."""

    def __init__(self, done: Pass, report: Report,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.done = done
        self._report = report
        self._clock = clock
        self._report_due = clock()

    def has_read(self) -> None:
        """To be called whenever something was read."""
        now = self._clock()
        if now >= self._report_due:
            self._report_due = now + REPORT_EVERY
            self._report(self.done, None)

    def verify(self, disk: FromDisk, end: int) -> None:
        window = Window(disk, end)
        window.SIZE = WINDOW
        before = self._last_verified(window)
        if before is None:
            self.done = Pass(int(time.time()))
            self._verify_magic(disk)
        for found in scan.walk(window, self.done.position, before):
            unreadable = disk.take_unreadable(found.end)
            if isinstance(found, scan.Damage) or unreadable:
                self._note_damage(found, unreadable)
            else:
                self._note_sound(found)

    def _last_verified(self, window: Window) -> scan.Transaction | None:
        """The transaction behind which the pass goes on, if it is there."""
        found = scan.transaction_before(window, self.done.position)
        if found is None or found.tid != self.done.tid.to_bytes(8, 'big'):
            return None
        return found

    def _verify_magic(self, disk: FromDisk) -> None:
        if disk(FIRST, 0) != FILESTORAGE_MAGIC:
            self._add_damage(scan.Damage(
                0, None, scan.DAMAGED,
                disk.take_unreadable(FIRST)
                or 'the file does not begin with the magic of a Data.fs'))

    def _note_sound(self, found: scan.Transaction) -> None:
        done = self.done
        done.position = found.end
        done.tid = int.from_bytes(found.tid, 'big')
        done.transactions += 1
        done.unsealed += found.seal != seal.SOUND

    def _note_damage(self, found: scan.Transaction | scan.Damage,
                     unreadable: str | None) -> None:
        reasons = [found.reason] if isinstance(found, scan.Damage) else []
        if unreadable:
            reasons.append(unreadable)
        self._add_damage(scan.Damage(
            found.position, found.tid, scan.DAMAGED, '; '.join(reasons)))

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
