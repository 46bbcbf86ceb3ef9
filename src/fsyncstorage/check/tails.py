"""If something is not sound: is it the tail of a file, or damage?

The tail is what a power cut leaves, or what is being written right now.  If
something behind it proves that it was on disk already, it is damage.

The file may be written meanwhile: an unfinished transaction can be cut off,
and others written in its place, which then look like a proof.  So the proof is
looked for first, and then the place is read once more.
"""

from ..format import headers
from ..format import scan
from ..format import seal


class Tails:
    """The tail of one file."""

    def __init__(self, window):
        self.window = window
        #: The Damage that is the tail, when `walk` has reached it.
        self.tail = None
        self._later_seals = None
        # What proves that the suspected place was on disk.
        self._durable = None
        self._is_passed = False

    def walk(self):
        """Yield every transaction and each Damage; end at the tail."""
        for found in scan.walk(self.window, suspect=self._look_for_proof):
            if isinstance(found, scan.Damage) and self._is_tail(found):
                self.tail = found
                return
            yield found

    def _look_for_proof(self, damage):
        """Called with rising positions, before the place is read again."""
        if self._later_seals is None:
            self._later_seals = LaterSeals(self.window, damage.position + 1)
        self._durable = self._later_seals.durable(damage.position)
        # Several transactions can be unfinished at a time, and after a power
        # cut, a later one may be finished while this one is not.  But a seal
        # says what was on disk before it; and in files without seals, no
        # transaction is written behind an unfinished one.
        self._is_passed = (
            damage.kind == scan.UNFINISHED and self._is_finished_without_seal(
                scan.end_of_damage(self.window, damage)))

    def _is_tail(self, damage):
        if damage.kind == scan.UNFINISHED:
            return not self._is_passed and (
                self._durable is None or self._durable <= damage.position)
        if damage.kind == scan.SHORT or self.is_without_header(damage):
            return damage.end == self.window.end and self._durable is None
        return False

    def _is_finished_without_seal(self, position):
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
        for position, found in headers.find_sound_seals(window, start):
            while self._seals and self._seals[-1][1] <= found.durable:
                self._seals.pop()
            self._seals.append((position, found.durable))
        self._seals.reverse()

    def durable(self, position):
        """The greatest position in a seal behind this one; None: no seal."""
        while self._seals and self._seals[-1][0] <= position:
            self._seals.pop()
        return self._seals[-1][1] if self._seals else None
