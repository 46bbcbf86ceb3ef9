"""All of a Data.fs, from its first bytes to its tail.

The first four bytes tell whether it is a Data.fs.  The tail is what a power
cut leaves, or what is being written right now.  If something behind it proves
that it was on disk already, it is damage.

The file may be written meanwhile: an unfinished transaction can be cut off,
and others written in its place, which then look like a proof.  So the proof is
looked for first, and then the place is read once more.
"""

from ZODB._compat import FILESTORAGE_MAGIC

from ..format import headers
from ..format import scan
from ..format import seal


class NoDataFile(Exception):
    """The file is no Data.fs, and cannot be read as one."""


def wrong_magic(window):
    """None for a Data.fs; a text if only its first bytes are damaged.

    NoDataFile if it is no Data.fs.
    """
    magic = window.read(0, scan.FIRST)
    if len(magic) < scan.FIRST:
        raise NoDataFile(
            f'it has {len(magic)} bytes, and no Data.fs is that short. A'
            ' power cut while one is created or packed can leave this: do'
            ' not open it, look for a .old beside it or a backup')
    if magic == b'FS21':
        raise NoDataFile(
            'it was written under Python 2 (it begins with FS21); convert'
            ' it with zodbupdate first')
    if magic == FILESTORAGE_MAGIC:
        return None
    expected = FILESTORAGE_MAGIC.decode()
    try:
        scan.read_transaction(window, scan.FIRST)
    except scan.Damage:
        raise NoDataFile(
            f'it is no Data.fs: it does not begin with {expected}') from None
    return f'the file begins with {magic!r}, not with {expected}'


class Tails:
    """The tail of one file."""

    def __init__(self, window):
        self.window = window
        #: The Damage that is the tail, when `walk` has reached it.
        self.tail = None
        # What the seals behind the first suspected place show: where the last
        # one is, and the end of what was durable when one of them was made.
        self._last_seal = self._durable = 0
        self._is_searched = False
        # Is there a finished transaction behind an unfinished one?
        self._is_passed = False

    def walk(self):
        """Yield every transaction and each Damage; end at the tail.

        If the first bytes are damaged, that is a Damage at position 0;
        NoDataFile if the file is no Data.fs.
        """
        if (wrong := wrong_magic(self.window)) is not None:
            damage = scan.Damage(0, None, scan.DAMAGED, wrong)
            damage.end = scan.FIRST
            yield damage
        for found in scan.walk(self.window, suspect=self._look_for_proof):
            if isinstance(found, scan.Damage) and self._is_tail(found):
                self.tail = found
                return
            yield found

    def _look_for_proof(self, damage):
        """Called with rising positions, before the place is read again."""
        if not self._is_searched:
            self._is_searched = True
            self._search_seals(damage.position + 1)
        # Several transactions can be unfinished at a time, and after a power
        # cut, a later one may be finished while this one is not.  But a seal
        # says what was on disk before it; and in files without seals, no
        # transaction is written behind an unfinished one.
        self._is_passed = (
            damage.kind == scan.UNFINISHED and self._is_finished_without_seal(
                scan.end_of_damage(self.window, damage)))

    def _search_seals(self, start):
        """Read the rest of the file, once for all places.

        What was durable ends before the seal that says so.  So if the seal
        that says most is before a place, no seal says anything of the place.
        """
        for position, found in headers.find_sound_seals(self.window, start):
            self._last_seal = max(self._last_seal, position)
            if self._durable < found.durable <= position:
                self._durable = found.durable

    def _is_tail(self, damage):
        if damage.kind == scan.UNFINISHED:
            return self._durable <= damage.position and not self._is_passed
        if damage.kind == scan.SHORT or self.is_without_header(damage):
            return (damage.end == self.window.end
                    and self._last_seal <= damage.position)
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
