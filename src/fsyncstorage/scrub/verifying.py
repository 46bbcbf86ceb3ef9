"""One pass: reads the file in its order, and verifies each transaction.

Damage is what the walk of format.scan calls damage, as in `fsync-check` and in
a pack; and what the disk cannot read.  A transaction with a seal is verified
as a whole.  Of one without a seal, only the structure is verified.

- Damage is reported only if it is there again after a pause: a disk may have
  had trouble for a moment.
- A tid that does not rise is not damage: the storage opens such a file, with a
  warning.  The scrub counts these transactions.

A pass that was interrupted goes on where the last noted transaction ends, if
that transaction is there, and sound.  Otherwise it begins anew.
"""

import contextlib
import time
from collections.abc import Callable
from collections.abc import Iterable

from ZODB._compat import FILESTORAGE_MAGIC

from ..format import scan
from ..format import seal
from ..format.scan import FIRST
from ..format.window import Window
from .fromdisk import FromDisk
from .notes import Pass

# A transaction of at most this many bytes is read only once.
WINDOW = 1 << 20
# Seconds between two reports of the progress.
REPORT_EVERY = 1.0
# How many times a pass pauses before it reads something again: a file may have
# millions of damaged transactions.
MOST_PAUSES = 20

Report = Callable[[Pass, 'scan.Damage | None'], object]


class Verifier:
    """`report` is called with the Pass, and with a Damage or None.

    `pause()` waits before something is read again.  `sound_again` is called
    with a Damage that is not found then.
    """

    def __init__(self, done: Pass, report: Report,
                 pause: Callable[[], object],
                 sound_again: Callable[[scan.Damage], object],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.done = done
        self._report = report
        self._pause = pause
        self._sound_again = sound_again
        self._pauses = 0
        self._clock = clock
        self._report_due = clock()

    def has_read(self) -> None:
        """To be called whenever something was read."""
        now = self._clock()
        if now >= self._report_due:
            self._report_due = now + REPORT_EVERY
            self._report(self.done, None)

    def verify(self, disk: FromDisk, end: int) -> None:
        window = _window(disk, end)
        before = self._last_verified(window)
        # What could not be read so far does not concern what follows.
        disk.take_unreadable(end)
        window.forget()
        if before is None:
            self.done = Pass(int(time.time()))
            self._verify_magic(disk)
        walk = scan.walk(window, self.done.position, before)
        while (found := next(walk, None)) is not None:
            if (disk.unreadable(found.end)
                    or isinstance(found, scan.Damage)
                    and not _is_unordered(found)):
                again = self._looked_at_again(disk, end, found, before)
                if isinstance(again, scan.Transaction):
                    walk = scan.walk(window, again.end, again)
                found = again
            before = self._note(found) or before

    def _last_verified(self, window: Window) -> scan.Transaction | None:
        """The noted transaction, after which the pass goes on, if it is there.
        """
        found = scan.transaction_before(window, self.done.position)
        if found is None or found.tid != self.done.tid.to_bytes(8, 'big'):
            return None
        return found

    def _verify_magic(self, disk: FromDisk) -> None:
        if _has_magic(disk):
            return
        self._pause_or_not()
        disk.take_unreadable(FIRST)
        if not _has_magic(disk):
            self._add_damage(scan.Damage(
                0, None, scan.DAMAGED,
                disk.take_unreadable(FIRST)
                or 'the file does not begin with the magic of a Data.fs'))

    def _looked_at_again(self, disk: FromDisk, end: int,
                         found: scan.Transaction | scan.Damage,
                         before: scan.Transaction | None
                         ) -> scan.Transaction | scan.Damage:
        """Read it again: the transaction if it is sound now, or the damage."""
        is_said = self._pause_or_not()
        first = _damage(found, disk.unreadable(found.end))
        disk.try_unreadable_again(found.end)
        unreadable = disk.take_unreadable(found.end)
        again: scan.Transaction | scan.Damage
        try:
            again = scan.read_transaction(
                _window(disk, end), found.position, before)
        except scan.Damage as damage:
            again = damage
            again.end = found.end
        newly = disk.take_unreadable(again.end)
        if unreadable or newly:
            return _damage(again, unreadable or newly)
        if is_said and (isinstance(again, scan.Transaction)
                        or _is_unordered(again)):
            self._sound_again(first)
        return again

    def _pause_or_not(self) -> bool:
        self._pauses += 1
        if self._pauses > MOST_PAUSES:
            return False
        self._pause()
        return True

    def _note(self, found: scan.Transaction | scan.Damage
              ) -> scan.Transaction | None:
        """Count it.  Return the transaction that the next one must follow.

        None: the next one must follow the same transaction as this one.
        """
        if isinstance(found, scan.Transaction):
            self._note_sound(found)
            return found
        sound = found.sound_records
        if sound is not None and _is_unordered(found):
            self.done.unordered += 1
            self._note_sound(sound)
        else:
            self._add_damage(found)
        return sound

    def _note_sound(self, found: scan.Transaction) -> None:
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


def is_mended(disk: FromDisk, end: int, places: Iterable[int]) -> bool:
    """Are these places, which were damaged, sound now?

    They may be, for example after a backup was restored.
    """
    return all(_is_sound(disk, end, place) for place in places)


def _is_sound(disk: FromDisk, end: int, position: int) -> bool:
    disk.take_unreadable(end)
    if position >= end:
        return True  # it is not in the file any more
    if position < FIRST:
        return _has_magic(disk)
    window = _window(disk, end)
    with contextlib.suppress(scan.Damage):
        found = scan.read_transaction(window, position)
        for _ in window.pieces(position, found.end):
            pass  # read all of it: without a seal, not all was read above
        # (A seal that was moved proves nothing.)
        return (found.seal != seal.MOVED
                and disk.take_unreadable(found.end) is None)
    return False


def _window(disk: FromDisk, end: int) -> Window:
    window = Window(disk, end)
    window.SIZE = WINDOW
    return window


def _has_magic(disk: FromDisk) -> bool:
    return disk(FIRST, 0) == FILESTORAGE_MAGIC


def _is_unordered(damage: scan.Damage) -> bool:
    """Is its tid, which does not rise, all that is wrong with it?"""
    return damage.reason.startswith(scan.DOES_NOT_RISE)


def _damage(found: scan.Transaction | scan.Damage,
            unreadable: str | None) -> scan.Damage:
    """A Damage that says what is wrong, and what the disk cannot read."""
    reasons = [unreadable] if unreadable else []
    if isinstance(found, scan.Damage):
        reasons.append(found.reason)
        transaction = found.transaction
    else:
        transaction = found
    damage = scan.Damage(found.position, found.tid, scan.DAMAGED,
                         '; '.join(reasons), transaction)
    damage.end = found.end
    return damage
