"""Is what is not sound the tail of a file, or damage?

The tail is what a power cut leaves, or what is being written right now.  If
something behind it proves that it was on disk already, it is damage.
"""

from ..format import scan
from ..format import seal
from .laterseals import LaterSeals


class Tails:
    """Of one file.  It is asked about each Damage in the order of the file."""

    def __init__(self, window):
        self.window = window
        self.later_seals = None

    def is_tail(self, damage):
        """Is this a tail, and no damage?"""
        if self.later_seals is None:
            self.later_seals = LaterSeals(self.window, damage.position + 1)
        durable = self.later_seals.durable(damage.position)
        if damage.kind == scan.UNFINISHED:
            # Several can be unfinished at a time, and after a power cut a
            # later one alone may be finished.  But a seal tells what was on
            # disk before it, and without seals, no transaction is written
            # behind an unfinished one.
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
        """The header of a large transaction is written last."""
        return damage.tid is not None and not any(
            self.window.read(damage.position, scan.HEADER))
