"""What several nodes agree on, so that each packs its file to the same bytes.

The file that is packed depends on the old one, the pack time, whether garbage
goes, the end up to which the pack reads before it decides, and the code that
packs (I15).  The node that writes tells the others, when undos ask what they
may restore (restorable): so each undo is before the end, where all nodes see
it, or it has asked.  When its new file is complete and durable, it tells them,
too, and only then gives it its name.

`Agreement` is one pack's part in that, and asks `Hooks`, if the storage has
any, each at its time and once:

    begins  the pack is to begin; the answer is its end
    swaps   the new file is about to take the place of the old one
    over    the new file has the name; or all is as it was

Once `swaps` has been answered, others may have replaced their files: then
there is no way back.  What fails behind it stops writing, and leaves the new
file, which the next start puts in its place (generation).
"""

import logging
import typing

import ZODB.serialize

from ..errors import OutcomeUnknown
from .marking import References

logger = logging.getLogger(__name__)

#: Of what packs.  A change by which the same file becomes other bytes needs
#: another one: then nodes of both releases do not pack for each other in vain.
#: (It is not the release: a node that has to pack again after an upgrade, in
#: the place of one that is lost, can do that.)
VERSION = b'1'
# Where a storage wrapper reads references in a way that we do not know.
VERSION_OF_WRAPPER = b'of a wrapper'


class Begin(typing.NamedTuple):
    """All that the new file depends on, but the old one."""

    #: Of the old file: what a pack reads before it decides.
    end: int
    #: The tid of the pack time.
    stop: bytes
    collects_garbage: bool
    version: bytes


class Becoming(typing.NamedTuple):
    """The file that is to take the place of the old one."""

    size: int
    checksum: bytes


class Hooks(typing.Protocol):
    """What a storage asks where several nodes have its file."""

    def begins(self, stop: bytes, collects_garbage: bool,
               version: bytes) -> int:
        """Tell all nodes that a pack begins; return its end.

        What is before the end is durable, for all of them.  No lock is held,
        and commits go on.  What is raised ends the pack, and so must a close
        of the storage.
        """

    def swaps(self, becoming: Becoming) -> None:
        """Tell all nodes that this file takes the place of the old one.

        The append lock is held, nothing is on its way to the disk, and the
        new file is durable.  OutcomeUnknown if they may have been told, as
        where a close of the storage has ended the wait; whatever else is
        raised, they have not, and never will be.
        """

    def over(self, swapped: bool) -> None:
        """The new file has its name, durably; or all is as it was before.

        Not called if that is not known.  No lock is held.
        """


def version_of(references: References) -> bytes:
    return (VERSION if references is ZODB.serialize.referencesf
            else VERSION_OF_WRAPPER)


class Agreement:
    """Without hooks it asks nobody."""

    def __init__(self, hooks: Hooks | None) -> None:
        self._hooks = hooks
        self._begun = False
        #: Others may replace their files.
        self.is_final = False

    @property
    def is_wanted(self) -> bool:
        return self._hooks is not None

    def begins(self, stop: bytes, collects_garbage: bool,
               references: References) -> int | None:
        """Where the pack ends; None: wherever it likes."""
        if self._hooks is None:
            return None
        end = self._hooks.begins(
            stop, collects_garbage, version_of(references))
        self._begun = True
        return end

    def swaps(self, size: int, checksum: bytes | None) -> None:
        if self._hooks is None:
            return
        assert checksum is not None
        self.is_final = True    # an interrupt may come before the answer
        try:
            self._hooks.swaps(Becoming(size, checksum))
        except OutcomeUnknown:
            raise
        except Exception:
            self.is_final = False
            raise

    def swapped(self) -> None:
        """The new file has its name, durably."""
        if self._hooks is not None:
            self._begun = False
            self._hooks.over(True)

    def given_up(self) -> None:
        """The pack has ended otherwise, if it has not swapped."""
        if self._hooks is not None and self._begun and not self.is_final:
            self._begun = False
            try:
                self._hooks.over(False)
            except Exception as error:
                # The others wait for a swap in vain, until the next pack.
                logger.warning(
                    'the other nodes could not be told that a pack was given'
                    ' up: %s', error)


ALONE = Agreement(None)
