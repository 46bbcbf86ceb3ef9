"""If something is not sound: is it the tail of a file, or damage?

The tail is what a power cut leaves, or what is being written right now.  If
something behind it proves that it was on disk already, it is damage.

This proof is looked for after the place itself was read.  If the file is being
written, an unfinished transaction can be cut off in between, and others
written in its place, which then look like a proof.  So a place that is found
damaged is read once more.
"""

from ..format import scan
from ..format import seal
from ..format import sealsearch


class Tails:
    """The tail of one file."""

    def __init__(self, window):
        self.window = window
        self.later_seals = None
        #: The Damage that is the tail, when `walk` has reached it.
        self.tail = None

    def walk(self):
        """Yield every transaction and each Damage; end at the tail."""
        position, after, again = scan.FIRST, None, None
        while position is not None:
            start, position = position, None
            for found in scan.walk(self.window, start, after):
                if isinstance(found, scan.Damage):
                    if self.is_tail(found):
                        self.tail = found
                        return
                    if (found.position != again
                            and self.was_written(found, after)):
                        again = position = found.position
                        break
                    after = found.sound_records or after
                else:
                    after = found
                yield found

    def was_written(self, damage, after):
        """Is something else there by now?"""
        try:
            scan.read_transaction(
                self.window.scout(), damage.position, after)
        except scan.Damage as now:
            if now.args == damage.args:
                return False
        self.window.forget()
        self.later_seals = None
        return True

    def is_tail(self, damage):
        """Is this a tail, and not damage?  Call it with rising positions."""
        if self.later_seals is None:
            self.later_seals = LaterSeals(self.window, damage.position + 1)
        durable = self.later_seals.durable(damage.position)
        if damage.kind == scan.UNFINISHED:
            # Several transactions can be unfinished at a time, and after a
            # power cut, a later one may be finished while this one is not.
            # But a seal says what was on disk before it; and in files without
            # seals, no transaction is written behind an unfinished one.
            return ((durable is None or durable <= damage.position)
                    and not self.is_finished_without_seal(damage.end))
        if damage.kind == scan.SHORT or self.is_without_header(damage):
            return damage.end == self.window.end and durable is None
        return False

    def is_finished_without_seal(self, position):
        try:
            found = scan.read_transaction(self.window, position)
        except scan.Damage:
            return False
        return found.seal != seal.SOUND

    def is_without_header(self, damage):
        """Is its header missing?  That of a large transaction is written last.
        """
        return damage.tid is not None and not any(
            self.window.read(damage.position, scan.HEADER))


class LaterSeals:
    """What the seals behind a position prove to have been durable.

    A seal says how much of the file was durable when it was made.  The file
    is read once.

    Only those seals are kept that no later seal exceeds.  `durable` must be
    called with rising positions.
    """

    def __init__(self, window, start):
        self._seals = []
        for position, found in sealsearch.find_sound_seals(window, start):
            while self._seals and self._seals[-1][1] <= found.durable:
                self._seals.pop()
            self._seals.append((position, found.durable))
        self._seals.reverse()

    def durable(self, position):
        """The greatest position in a seal behind this one; None: no seal."""
        while self._seals and self._seals[-1][0] <= position:
            self._seals.pop()
        return self._seals[-1][1] if self._seals else None
