"""The start of a node that was about to replace its file by a packed one.

What the file becomes was kept before the file got the name, and the log knows
whether it was to get the name: docs/internals/quorum.rst, "Packs", has what
follows from both.  A new file gets the name only if a majority had the record
of its swap.  So if that record is missing then, the log has lost it; if
nothing was renamed, the record may still arrive, and the file is packed again.
"""

import logging
import os
import typing

from ... import datafile
from ...pack import generation
from ...pack import naming
from ...pack.agreed import Becoming
from ...pack.generation import Found
from ..history.fold import State
from ..history.fold import Why
from ..log.reading import ANEW
from ..log.reading import WHAT_TO_DO
from ..log.reading import Refused
from . import state as states
from .state import Kept

logger = logging.getLogger(__name__)


class Swap(typing.NamedTuple):
    """The record of a swap in the log, which a majority has."""

    becoming: Becoming
    #: The state after the swap.
    state: State


def settled(path: str, kept: Kept, swap: Swap | None, keep_old: bool) -> Kept:
    """What is kept of the file that has the name now.

    `swap` is the first one in the log after the kept state.
    """
    becoming = kept.becoming
    assert becoming is not None
    found = generation.look(
        path, becoming, lambda file: states.misfit(
            kept, states.reading(file), file.size()) is None)
    if found is Found.NEITHER:
        raise Refused(
            f'{path} was about to be replaced by a packed file of'
            f' {becoming.size} bytes, and is neither that nor the one that it'
            f' was. Put the right file there, with the {states.SUFFIX} that'
            f' was kept beside it; or {ANEW}')
    if swap is None or swap.becoming != becoming:
        return _taken_back(path, kept, found)
    if found is Found.OLD:
        logger.warning(
            '%s: the log has replaced it by a packed file, which this node has'
            ' not any more: it packs again', path)
        return kept._replace(becoming=None)
    if found is Found.READY:
        naming.replace(path, keep_old)
        logger.warning(
            '%s: a crash had interrupted the last step of a pack, which was'
            ' finished now', path)
    # A process that was killed may have left a name that is not durable.
    datafile.disk.sync_directory(os.path.dirname(os.path.abspath(path)))
    with datafile.open_existing(path, read_only=True) as file:
        return Kept(
            swap.state, states.tie_of(states.reading(file), swap.state.end),
            kept.node)


def _taken_back(path: str, kept: Kept, found: Found) -> Kept:
    if found is Found.NEW or not os.path.lexists(path):
        raise Refused(
            f'{path} was replaced by a packed file when the log had said so,'
            f' and the log does not have that. {WHAT_TO_DO[Why.BEHIND]}',
            Why.BEHIND)
    return kept._replace(becoming=None)


def remove_what_is_left(path: str) -> None:
    """Remove the packed file, if it did not get the name."""
    for suffix in naming.PACKED, naming.INDEX_OF_PACKED:
        datafile.remove_if_there(path + suffix)
