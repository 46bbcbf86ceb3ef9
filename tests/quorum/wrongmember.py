"""One member of the log is wrong, and does not know it.

It may say any ends, and may have lost its last records.  Then what is appended
has no effect there, as its head is another one; unless it is offered behind
the record that is this member's last one: then it has no effect on all others.
"""

import contextlib

from fsyncstorage.quorum.history.record import Ends
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.log.interface import Missing
from fsyncstorage.quorum.log.interface import Moved
from fsyncstorage.quorum.log.interface import Trimmed

from .fakelog import AT_ONCE
from .fakelog import MEMBERS
from .fakelog import Engine
from .fakelog import FakeLog


class EngineWithWrong(Engine):

    def __init__(self, *args, wrong=1):
        super().__init__(*args)
        self.wrong = wrong
        #: The ends that it says, or Missing.
        self.lie = None
        #: The records that it has, and its head, if it has lost some.
        self.own = None
        #: Called with each record that only this member takes.
        self.phantom = lambda raw: None

    def lose(self, records, head):
        """The wrong member has only the first ones of its records."""
        self.own = self.records[:records], head

    def replace(self):
        """A new member is in the place of the wrong one."""
        self.lie = self.own = None
        self.damaged = {
            (member, sequence): raw
            for (member, sequence), raw in self.damaged.items()
            if member != self.wrong}

    def restore(self, head):
        """All of its members are as they were."""
        super().restore(head)
        self.own = None

    def deliver(self, number=0):
        with contextlib.suppress(Missing):
            super().deliver(number)

    def _is_wrong(self, member):
        return member is not None and member % MEMBERS == self.wrong

    def ends(self, member=None):
        found = super().ends(member)
        if self._is_wrong(member):
            if self.lie is Missing:
                raise Missing
            if self.lie is not None:
                return self.lie
            if self.own is not None:
                return Ends(self.log, self.first, self.own[1])
        return found

    def read(self, sequence, member=None):
        if self._is_wrong(member):
            if self.lie is Missing:
                raise Missing
            if self.lie is not None and sequence < self.lie.first:
                raise Trimmed
            if self.own is not None:
                return self.own[0][sequence - 1:sequence - 1 + AT_ONCE]
        return super().read(sequence, member)

    def append_at(self, member, before, place, raw):
        """The answer is this member's."""
        if self.own is None:
            return self.append(before, place, raw)
        records, head = self.own
        is_next = head == before
        if is_next:
            self.own = [*records, raw], place
        answer = None
        try:
            self.append(before, place, raw)
        except Moved as error:
            answer = error
            if is_next:
                self.phantom(raw)
        if self._is_wrong(member):
            answer = None if is_next else Moved()
        if answer is not None:
            raise answer


class LogThroughOne(FakeLog):
    """It sends what it appends to one member."""

    through = 0

    def append(self, before, place, raw):
        self._call('append_at', self.through, before, place, raw)


def wrong_ends(ends):
    """What damage may make of them."""
    log, first, head = ends
    number, link = head
    other = bytes([link[0] ^ 1]) + link[1:]
    return [
        Ends(bytes([log[0] ^ 1]) + log[1:], first, head),
        Ends(log, first + (1 << 40), head),
        Ends(log, first, Place(number + (1 << 40), link)),
        Ends(log, first, Place(number ^ 1, link)),
        Ends(log, first, Place(max(0, number - 2), link)),
        Ends(log, first, Place(number, other)),
        Ends(log, first, Place(0, log)),
        Missing]
