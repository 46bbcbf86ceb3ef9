"""What a scrub knows: how far it is, and what it has found.

The notes are in a file beside the data file, so that a scrub can go on after a
restart, and known damage stays known.  The file of the notes is replaced as a
whole.  Its content is checked.  The position in it is believed only if the
data file has the noted transaction there (child).
"""

import dataclasses
import json
import os
import typing
from typing import Any

from .. import datafile
from ..format.scan import FIRST

SUFFIX = '.scrub'
#: The name under which the file is written.
SUFFIX_OF_NEW = '.scrub.new'
# More bytes than the file ever has, and more than any of its numbers.
_MOST_BYTES = 1 << 12
_MOST = 1 << 64


@dataclasses.dataclass
class Pass:
    """One reading of the file, up to where it was durable when this began."""

    #: When the pass began (seconds since the epoch).
    began: int
    #: All before this is verified.  A sound transaction with this tid ends
    #: here.
    position: int = FIRST
    tid: int = 0
    #: Sound transactions.
    transactions: int = 0
    #: Those of them without a seal: only their structure could be verified.
    unsealed: int = 0
    #: Those of them whose tid does not rise.
    unordered: int = 0
    #: Damaged transactions, and the positions of the first and the last one.
    damaged: int = 0
    first_damaged: int | None = None
    last_damaged: int | None = None


class Notes(typing.NamedTuple):
    #: The pass that is under way, and the last one that has ended.
    current: Pass
    last: Pass
    #: How many have ended; when the last one did.
    passes: int = 0
    ended: int | None = None

    def known_damage(self) -> tuple[int, int | None]:
        """How many damaged transactions, and the position of the first.

        The pass that is under way may not have reached all of them again.
        """
        first = self.current.first_damaged
        return (max(self.current.damaged, self.last.damaged),
                self.last.first_damaged if first is None else first)

    def after(self, done: Pass) -> 'Notes':
        """The notes after a report of the pass that is under way.

        A pass that has begun anew has not seen again the damage that was found
        before: that damage now counts as found by the last pass.
        """
        last = self.last
        if done.damaged < self.current.damaged:
            last = dataclasses.replace(
                self.current, damaged=self.known_damage()[0])
        return self._replace(current=done, last=last)

    def after_the_end(self, done: Pass, now: int) -> 'Notes':
        return Notes(Pass(0), done, self.passes + 1, now)

    def without_damage(self) -> 'Notes':
        """The notes if all must be read anew, and no damage is known."""
        return self._replace(current=Pass(0), last=Pass(0))


#: Nothing is known yet.
NOTHING = Notes(Pass(0), Pass(0))


def checked(found: Any) -> Pass:
    """What was read from JSON; ValueError: it is no Pass."""
    try:
        made = Pass(**found)
    except TypeError:
        raise ValueError('it is no pass') from None
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        if value is not None or field.default is not None:
            _check_number(value)
    return made


def _check_number(value: Any) -> None:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError('it is no number')


def load(path: str) -> Notes | None:
    """What was noted; None: nothing, or something impossible."""
    if not os.path.isfile(path):  # a pipe would hang
        return None
    try:
        with open(path, 'rb') as file:
            current, last, passes, ended = json.loads(file.read(_MOST_BYTES))
        for number in [passes] if ended is None else [passes, ended]:
            _check_number(number)
        return Notes(checked(current), checked(last), passes, ended)
    except (OSError, RecursionError, TypeError, ValueError):
        return None


def save(path: str, notes: Notes) -> None:
    new = path.removesuffix(SUFFIX) + SUFFIX_OF_NEW
    with datafile.open_new(new) as file:
        file.write_at(json.dumps([
            dataclasses.asdict(notes.current), dataclasses.asdict(notes.last),
            notes.passes, notes.ended]).encode(), 0)
        file.sync()
    datafile.disk.replace(new, path)
