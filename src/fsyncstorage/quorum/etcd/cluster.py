"""The members of etcd together: which is asked, and which is believed.

A question goes to one member, and then to the next, until one answers.  Each
member has a share of the time, so that one that is frozen leaves some to the
others.  For some seconds, a member that did not answer in time has a smaller
share; otherwise it would hold up everything that is asked of each member.  The
member that has answered is asked first the next time.

A function that is given with the question decides what an answer means.  If it
finds the answer damaged, that counts as no answer.

Each answer names the cluster that it comes from.  The cluster of most members
is the right one, and an answer from another one counts as no answer, too: a
member that was begun anew as a cluster of its own, by mistake, takes whatever
it is given.
"""

import logging
import threading
import time
import typing
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

from ..history.record import Damaged
from ..log.interface import Unanswered
from . import messages
from .member import Asked
from .member import Member
from .messages import Message
from .messages import Question
from .messages import Status
from .settings import Settings
from .trouble import Foreign
from .trouble import Late
from .trouble import Trouble
from .trouble import unanswered

logger = logging.getLogger(__name__)

#: Seconds until a call gives up, with all members together: longer than etcd
#: takes to choose a new leader.
PATIENCE = 6.0
#: Seconds for a member that was late, and for how long it has only these.
SHORT, LATE = 0.5, 10.0
#: Seconds between two log lines about one damaged member.
SILENCE = 60.0

T = typing.TypeVar('T')


class Cluster:

    def __init__(self, settings: Settings) -> None:
        self.members = [
            Member(address, settings) for address in settings.addresses]
        self._first = 0
        #: The cluster of most members; 0: that is not known yet.
        self._id = 0
        self._id_of: dict[Member, int] = {}
        self.patience = PATIENCE
        #: Until when nothing more is logged of a member.
        self._silent: dict[Member, float] = {}
        #: Until when members that did not answer in time have a short share.
        self._late: dict[Member, float] = {}
        self._stopping = threading.Event()

    # Questions

    def ask(self, question: Question, judge: Callable[[Message], T],
            member: int | None = None,
            seconds: float | None = None) -> T:
        """The answer of one member: of `member`, if it is given."""
        members = (self.all_from(self.preferred) if member is None else
                   [self.members[member % len(self.members)]])
        _, answer = next(self.answers(members, question, judge, seconds))
        return answer

    def answers(self, members: Sequence[Member], question: Question,
                judge: Callable[[Message], T], seconds: float | None = None
                ) -> Iterator[tuple[Member, T]]:
        """The answers of one member after the other.

        It does not end: after the last member it raises Unanswered.
        """
        if seconds is None:
            seconds = self.patience
        share = seconds / len(self.members)
        deadline = time.monotonic() + seconds
        troubles: dict[str, Trouble] = {}
        for one in members:
            now = time.monotonic()
            is_late = now < self._late.get(one, 0)
            patience = min(
                deadline, now + (min(SHORT, share) if is_late else share))
            try:
                answer = self._judged(
                    one, one.ask(question, patience), judge)
            except (Trouble, Damaged) as error:
                if isinstance(error, Late) and not is_late:
                    self._late[one] = time.monotonic() + LATE
                troubles[str(one)] = self._in_trouble(one, error)
            else:
                self._late.pop(one, None)
                yield one, answer
        raise unanswered(troubles)

    def begin(self, question: Question) -> Asked:
        """Ask one member, and return at once."""
        member = self.preferred
        try:
            return member.begin(question, time.monotonic() + self.share)
        except Trouble as error:
            raise self.failed(member, error) from error

    def answer(self, asked: Asked, judge: Callable[[Message], T]) -> T:
        """The answer to a question that was begun."""
        try:
            return self._judged(asked.member, asked.answer(), judge)
        except (Trouble, Damaged) as error:
            raise self.failed(asked.member, error) from error

    @property
    def share(self) -> float:
        """The seconds of a question to one member."""
        return self.patience / len(self.members)

    def statuses(self, seconds: float) -> dict[Member, Status | Trouble]:
        """What each member says of itself, in so many seconds each; or why it
        says nothing that is believed."""
        found: dict[Member, Status | Trouble] = {}
        for member in self.members:
            try:
                found[member] = status = messages.status(member.ask(
                    messages.STATUS, time.monotonic() + seconds))
                self._is_of(member, status.cluster)
            except Trouble as error:
                found[member] = error
        for member in self.members:  # now it is known which is the right one
            try:
                self._refuse_another(member)
            except Trouble as error:
                found[member] = error
        return found

    # Which member is believed

    def _judged(self, member: Member, answer: Message,
                 judge: Callable[[Message], T]) -> T:
        self._is_of(member, answer.header.cluster_id)
        self._refuse_another(member)
        return judge(answer)

    def _is_of(self, member: Member, id: int) -> None:
        """The member says that it is of this cluster; 0: it does not say."""
        if id and self._id_of.get(member) != id:
            self._id_of[member] = id
            ids = list(self._id_of.values())
            self._id = next((each for each in ids if 2 * ids.count(each)
                             > len(self.members)), 0)

    def _refuse_another(self, member: Member) -> None:
        """Raise Foreign if it is of another cluster than most members."""
        if self._id and self._id_of.get(member, self._id) != self._id:
            raise Foreign(
                'it is a member of another cluster than most. To bring it'
                ' back: etcdctl member remove and member add, and start it'
                ' with an empty directory and --initial-cluster-state'
                ' existing')

    # Which member is asked

    @property
    def preferred(self) -> Member:
        return self.members[self._first]

    def prefer(self, member: Member) -> None:
        self._first = self.members.index(member)

    def all_from(self, member: Member) -> list[Member]:
        """All members, this one first."""
        first = self.members.index(member)
        return self.members[first:] + self.members[:first]

    def turn_from(self, member: Member) -> None:
        """This member is not asked first any more."""
        if member is self.preferred:
            self._first = (self._first + 1) % len(self.members)

    def failed(self, member: Member, error: Exception) -> Unanswered:
        """The error to raise for this member's trouble."""
        return unanswered({str(member): self._in_trouble(member, error)})

    def _in_trouble(self, member: Member, error: Exception) -> Trouble:
        if isinstance(error, Damaged) and self._may_say(member):
            logger.warning(
                'etcd: %s gives what it was not given: %s. Other members are'
                ' asked. Replace this one: remove it, and add it with an'
                ' empty directory', member, error)
        elif isinstance(error, Foreign) and self._may_say(member):
            logger.warning('etcd: %s is not believed: %s', member, error)
        self.turn_from(member)
        # Its traceback refers to the bytes that were read.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        return error if isinstance(error, Trouble) else Trouble(str(error))

    def _may_say(self, member: Member) -> bool:
        now = time.monotonic()
        if now < self._silent.get(member, now):
            return False
        self._silent[member] = now + SILENCE
        return True

    # The end

    def pause(self, seconds: float) -> None:
        """Wait, but return early when the cluster is stopped."""
        self._stopping.wait(seconds)

    def stop(self) -> None:
        """(All that is open is closed, too.)"""
        self._stopping.set()
        for member in self.members:
            member.close()
