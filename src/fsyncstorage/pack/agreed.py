"""What several nodes agree on, so that each packs its file to the same bytes.

`Agreement` is the part of one pack in this.  If the storage has `Hooks`, it
calls each of them once:

    begins  the pack is about to begin; the answer is its end
    ready   the new file has all up to that end; other nodes are waited for
    swaps   the new file is about to take the place of the old one
    over    the new file has its name; or all is as it was before

Once `swaps` has been answered, other nodes may have replaced their files, so
there is no way back.  A failure after that stops writing, and leaves the new
file, which the next start puts in its place (generation).
(docs/internals/pack.rst, "Several nodes")
"""

import logging
import typing
from collections.abc import Callable

from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.serialize import referencesf

from ..errors import OutcomeUnknown
from .plan import References

logger = logging.getLogger(__name__)

#: The version of the packer.  It must change whenever the same file would be
#: packed to other bytes: then nodes of two releases do not pack in vain to
#: match each other.  (It is not the version of the release, so that after an
#: upgrade a node can still repeat the pack of a node that is lost.)
VERSION = b'3'


class Becoming(typing.NamedTuple):
    """The file that is to take the place of the old one."""

    size: int
    checksum: bytes


class Hooks(typing.Protocol):
    """What a pack calls where several nodes have the storage's file."""

    def begins(self, stop: bytes, collects_garbage: bool) -> int:
        """Tell all nodes that a pack begins; return its end.

        What is before the end is durable, for all nodes.  No lock is held, and
        commits go on.  An exception ends the pack.  A close of the storage
        must end this call, by an exception.
        """

    def ready(self, part: bytes, look: Callable[[], object]) -> None:
        """Wait until the other nodes have packed up to the end, too.

        `part` is size and checksum of what that is in the new file; an
        exception ends the pack, for example if another node's is different.
        No lock is held, and commits go on.  `look` raises an exception if the
        pack must end.
        """

    def swaps(self, becoming: Becoming) -> None:
        """Tell all nodes that this file takes the place of the old one.

        The append lock is held, nothing is on its way to the disk, and the
        new file is durable.  OutcomeUnknown means that the nodes may have been
        told, for example when a close of the storage has ended the wait.  Any
        other exception means that they have not been told, and never will be.
        """

    def over(self, swapped: bool) -> None:
        """The new file has its name, durably; or all is as it was before.

        Not called if it is not known which of the two is true.  No lock is
        held.
        """


def refuse_a_wrapper(references: References) -> None:
    if references is not referencesf:
        raise FileStorageError(
            'where other machines have the file, too, it is not packed through'
            ' a wrapper that reads references in its own way: they would not'
            ' make the same file. Nothing was changed')


class Agreement:
    """Without hooks it does nothing."""

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
        """Where the pack ends; None: the pack chooses the end itself."""
        if self._hooks is None:
            return None
        refuse_a_wrapper(references)
        end = self._hooks.begins(stop, collects_garbage)
        self._begun = True
        return end

    def ready(self, part: bytes, look: Callable[[], object]) -> None:
        if self._hooks is not None:
            self._hooks.ready(part, look)

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
        """The pack has ended.  If it has not swapped, tell the others."""
        if self._hooks is not None and self._begun and not self.is_final:
            self._begun = False
            try:
                self._hooks.over(False)
            except Exception as error:
                # The others wait for a swap in vain, until the next pack.
                logger.warning(
                    'the other nodes could not be told that a pack was given'
                    ' up: %s', error)
