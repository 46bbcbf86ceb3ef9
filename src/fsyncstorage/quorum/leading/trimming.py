"""Removes from the log what all nodes have kept.

Each node notes in the log the place that it has kept (roles.presence), because
it would start from there.  About once a minute, and more often while the log
is large for its limit, there is a round (tidying has the thread):

1. If another node notes under our name (log.notes), nothing is removed: what
   it needs is not known.
2. Find the first of the places; ours is one of them, as another node may write
   next.  If more than one record is before it, append
   a `Trim` that says so.  A writer that is fenced cannot do that, and removes
   nothing.  While somebody waits for room, one record that takes some is
   enough, even if it is the last one: then the nodes go on to the Trim, and a
   later round removes the record.  (A Trim takes no room, so this ends.)
3. Read the notes once more.  If a node with an earlier place has arrived in
   between, nothing is removed now.  (A node that notes a place for the first
   time looks for such a Trim after that: so one of the two finds the other.)
4. Remove the blobs that the records name, and then the records.  The record
   that each node has kept last stays.

If steps 3 and 4 were not answered, the next round begins with them: they need
no room.  A round that removes nothing lets the engine free what was replaced.

A note that cannot be read stops all removal, as it may be of a node that can
still come back.  A note of a place before the first record stops nothing, as
its node cannot go on with this log.

If the operator has chosen so (`drops`), the node whose place is the first one
is left behind while somebody waits for room, if it has stayed in one place,
behind ours, for half a minute: a node that is well needs some seconds for
large blobs.
"""

import logging
import sys
import time
from collections.abc import Callable
from collections.abc import Mapping

from ..history.record import Damaged
from ..history.record import Ends
from ..history.record import Place
from ..history.record import Trim
from ..log import members
from ..log.interface import Log
from ..log.interface import Unanswered
from ..log.notes import Author
from ..log.notes import of_nodes
from ..log.notes import parse_note
from ..log.notes import shown
from ..log.reading import Refused
from .loglimit import LogLimit

logger = logging.getLogger(__name__)

#: Seconds from one round to the next: usually, and while the log is large.
EVERY, SOON = 60.0, 0.5
#: Seconds for which a node stays in one place before it is left behind.
STANDS_STILL = 30.0
#: How many blobs one call removes.
AT_ONCE = 1000


class Trimming:

    def __init__(self, name: str, log: Log, author: Author,
                 bring_in: Callable[[Trim], object], drops: bool,
                 limit: LogLimit) -> None:
        """`bring_in` returns when a record is in the log; it raises Fenced or
        NotReplicated if it will not be."""
        self._name = name
        self._log = log
        self._author = author
        self._bring_in = bring_in
        self._drops = drops
        self._limit = limit
        #: A Trim in the log allows to remove the records before this one; 0:
        #: they are removed.
        self._said_first = 0
        self._begun: float | None = None
        #: When the engine was last told to free something.
        self._freed = time.monotonic()
        #: Nodes that are behind us: their places, and since when they have
        #: been there.
        self._behind: dict[bytes, tuple[Place, float]] = {}
        #: The nodes of which something was logged.
        self._said: set[bytes] = set()

    def round_if_due(self) -> None:
        """Raise Unanswered, Trimmed, Missing: it comes again; Fenced,
        NotReplicated: it is over."""
        now = time.monotonic()
        pause = SOON if self._limit.is_near else EVERY
        if self._begun is not None and now < self._begun + pause:
            return
        self._begun = now
        try:
            self.round()
        except Refused as error:
            self._limit.reason = str(error)
            self._warn(self._author.name,
                       f'nothing is removed from the log: {error}')

    def round(self) -> None:
        if self._said_first:
            self._remove_what_was_said()
        self._author.refuse_another(self._log, self._log.notes())
        ends = members.ends(self._log)
        places = self._places(ends)
        self._see_who_is_behind(places)
        first = min(_first(places), self._known_to)
        self._limit.reason = self._what_holds_it(places, ends)
        if self._is_worth_a_trim(first, ends) and self._may_trim(places):
            self._bring_in(Trim(first))
            self._said_first = first
            self._remove_what_was_said()
            return
        if time.monotonic() >= self._freed + EVERY:
            self._remove(ends.first)
        if self._drops and self._limit.lacks_room:
            self._leave_behind(places)

    def _is_worth_a_trim(self, first: int, ends: Ends) -> bool:
        if first > ends.first + 1 or not self._limit.lacks_room:
            return first > ends.first + 1
        # All nodes have the last record, and perhaps nobody can commit after
        # it.  A Trim lets them go on, so that the next Trim removes it.
        is_last = first == ends.head.sequence
        return self._limit.frees(first + is_last)

    @property
    def _known_to(self) -> int:
        """Records after this one may name blobs that are not known."""
        earlier = self._limit.earlier
        return sys.maxsize if earlier.is_read else earlier.next

    def _may_trim(self, places: Mapping[bytes, Place]) -> bool:
        """If no other node has noted its place, the log has the only other
        copy of what is acknowledged: it is not trimmed while there is room."""
        if len(places) > 1 or not self._limit.limit:
            return True
        if self._limit.is_near:
            self._warn(self._author.name, (
                'it is the only one that the log knows, and the log is half'
                ' full: what is removed from it is on one disk only'))
        return self._limit.is_near

    def _places(self, ends: Ends) -> dict[bytes, Place]:
        """The places of the nodes that can go on from what the log has: ours
        is one of them."""
        found = {}
        for node, raw in of_nodes(self._log).items():
            try:
                place = parse_note(raw).place
            except Damaged:
                self._warn(node, (
                    'its note in the log is none of ours; nothing is removed'
                    ' from the log before that node notes its place again, or'
                    ' is forgotten (fsync-quorum forget)'))
                place = Place(0, b'')
            else:
                if place.sequence + 1 < ends.first:
                    self._warn(node, (
                        'the log does not have what it needs next: it was'
                        ' left behind. Forget it (fsync-quorum forget), and'
                        ' then, if it is to come back, begin it anew'
                        ' (fsync-quorum bootstrap --from)'))
                    continue
                if node != self._author.name:
                    self._said.discard(node)
            found[node] = place
        if self._author.name not in found:
            raise Unanswered('our own place is not noted')
        return found

    def _remove_what_was_said(self) -> None:
        """Remove the records, unless a node has arrived that needs them."""
        first = self._said_first
        if _first(self._places(members.ends(self._log))) >= first:
            self._remove(first)
        self._said_first = 0

    def _remove(self, first: int) -> None:
        named = [*self._limit.named_before(first)]
        for at in range(0, len(named), AT_ONCE):
            self._log.unstage(named[at:at + AT_ONCE])
        self._log.trim(first)
        self._limit.trimmed(first)
        self._freed = time.monotonic()

    # The limit

    def _what_holds_it(self, places: Mapping[bytes, Place],
                       ends: Ends) -> str:
        if self._known_to < _first(places):
            return (self._limit.earlier.trouble
                    or 'what it had before this node led is not read yet')
        node = min(places, key=lambda each: places[each].sequence)
        if node == self._author.name:
            return 'this node has not kept what came last'
        return (f'the node {shown(node)} has kept no more than record'
                f' {places[node].sequence} of {ends.head.sequence}. Start it,'
                ' or forget it (fsync-quorum forget)')

    def _see_who_is_behind(self, places: Mapping[bytes, Place]) -> None:
        now, own = time.monotonic(), places[self._author.name]
        before, self._behind = self._behind, {}
        for node, place in places.items():
            if place.sequence < own.sequence:
                stood, since = before.get(node, (place, now))
                self._behind[node] = place, since if stood == place else now

    def _leave_behind(self, places: Mapping[bytes, Place]) -> None:
        node = min(self._behind, key=lambda each: places[each].sequence,
                   default=None)
        if node is None:
            return
        place, since = self._behind[node]
        if (place.sequence >= self._known_to
                or time.monotonic() < since + STANDS_STILL):
            return
        # A writer that is fenced must leave nobody behind: it fails here.
        self._bring_in(Trim(1))
        logger.critical(
            '%s: the log has %d bytes, and log-limit is %d: the node %s, which'
            ' has kept no more than record %d for %.0f s, is left behind, and'
            ' commits go on without it. Begin it anew (fsync-quorum'
            ' bootstrap --from)', self._name, self._limit.size,
            self._limit.limit, shown(node), place.sequence,
            time.monotonic() - since)
        self._log.forget(node)

    # What is logged

    def _warn(self, node: bytes, words: str) -> None:
        if node not in self._said:
            self._said.add(node)
            logger.warning(
                '%s: the node %s: %s', self._name, shown(node), words)


def _first(places: Mapping[bytes, Place]) -> int:
    return min(place.sequence for place in places.values())
