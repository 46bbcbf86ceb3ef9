"""The members of etcd together: who is asked, and who is believed.

A question goes to one member, and then to the next, until one answers: each
has a share of the time, so that one that is frozen leaves some to the others.
One that did not answer in time has less, for some seconds: it would hold up
all that is asked of each member.  The one that has answered is asked first the
next time.

What an answer means is found by a function that is given with the question;
what it finds to be damaged is as no answer at all.  Where one member is not
enough, `each` goes on to the others.

Each answer names the cluster that it comes from.  That of most members is the
right one, and what another one answers is as no answer, too: a member that was
begun anew as a cluster of its own, by mistake, takes whatever it is given.
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
from .messages import Question
from .protobuf import Message
from .settings import Settings
from .trouble import Foreign
from .trouble import Late
from .trouble import Trouble
from .trouble import unanswered

logger = logging.getLogger(__name__)

#: Seconds until a call gives up, and until it asks another member: longer
#: than etcd takes to choose a new leader.
PATIENCE = 6.0
#: Seconds for one that was late, and for how long that is held against it.
SHORT, LATE = 0.5, 10.0
#: Seconds between two lines about one damaged member.
SILENCE = 60.0

T = typing.TypeVar('T')


class Cluster:

    def __init__(self, settings: Settings) -> None:
        self.user = settings.user
        self.password = settings.password
        #: Of all members; none until one is asked for.
        self.token: str | None = None
        tls = settings.tls
        self.members = [
            Member(address, tls, self) for address in settings.addresses]
        self._first = 0
        #: The cluster of most members; 0: that is not known yet.
        self._id = 0
        self._id_of: dict[Member, int] = {}
        self.patience = PATIENCE
        #: Until when nothing more is said of a member.
        self._silent: dict[Member, float] = {}
        #: Until when those that did not answer in time have less.
        self._late: dict[Member, float] = {}
        self._stopping = threading.Event()

    # Questions

    def ask(self, question: Question, judge: Callable[[Message], T],
            member: int | None = None,
            seconds: float | None = None) -> T:
        """What one of them answers; if it is named, that one."""
        return next(self.each(question, judge, member, seconds))

    def each(self, question: Question, judge: Callable[[Message], T],
             member: int | None = None,
             seconds: float | None = None) -> Iterator[T]:
        """What one after the other answers.

        It does not end: behind the last of them it raises Unanswered.
        """
        for _, answer in self.answers(
                self._in_turn(member), question, judge, seconds):
            yield answer

    def answers(self, members: Sequence[Member], question: Question,
                judge: Callable[[Message], T], seconds: float | None = None
                ) -> Iterator[tuple[Member, T]]:
        """The same of these members, with who it was."""
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
        """Ask one of them, and return at once."""
        member = self.preferred
        try:
            return member.begin(question, self.share())
        except Trouble as error:
            raise self.failed(member, error) from error

    def answer(self, asked: Asked, judge: Callable[[Message], T]) -> T:
        """What it answers to what was begun."""
        try:
            return self._judged(
                asked.member, asked.answer(self.share()), judge)
        except (Trouble, Damaged) as error:
            raise self.failed(asked.member, error) from error

    def share(self) -> float:
        """The deadline of a question to one of them."""
        return time.monotonic() + self.patience / len(self.members)

    # Who is believed

    def _judged(self, member: Member, answer: Message,
                judge: Callable[[Message], T]) -> T:
        self.is_of(member, messages.cluster(answer))
        self.refuse_another(member)
        return judge(answer)

    def is_of(self, member: Member, id: int) -> None:
        """It says that it is of this cluster; 0: it does not say."""
        if id and self._id_of.get(member) != id:
            self._id_of[member] = id
            ids = list(self._id_of.values())
            self._id = next((each for each in ids if 2 * ids.count(each)
                             > len(self.members)), 0)

    def refuse_another(self, member: Member) -> None:
        """Raise Foreign if it is of another cluster than most."""
        if self._id and self._id_of.get(member, self._id) != self._id:
            raise Foreign(
                'it is a member of another cluster than most. To bring it'
                ' back: etcdctl member remove and member add, and start it'
                ' with an empty directory and --initial-cluster-state'
                ' existing')

    # Who is asked

    @property
    def preferred(self) -> Member:
        return self.members[self._first]

    def prefer(self, member: Member) -> None:
        self._first = self.members.index(member)

    def _in_turn(self, member: int | None) -> list[Member]:
        if member is not None:
            return [self.members[member % len(self.members)]]
        return self.all_from(self.preferred)

    def all_from(self, member: Member) -> list[Member]:
        """It comes first."""
        first = self.members.index(member)
        return self.members[first:] + self.members[:first]

    def turn_from(self, member: Member) -> None:
        """It is not asked first any more."""
        if member is self.preferred:
            self._first = (self._first + 1) % len(self.members)

    def failed(self, member: Member, error: Exception) -> Unanswered:
        """What is raised for it."""
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
        # Its traceback has what was read.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        return error if isinstance(error, Trouble) else Trouble(str(error))

    def _may_say(self, member: Member) -> bool:
        now = time.monotonic()
        if now < self._silent.get(member, now):
            return False
        self._silent[member] = now + SILENCE
        return True

    # The end

    @property
    def stopped(self) -> bool:
        return self._stopping.is_set()

    def pause(self, seconds: float) -> None:
        """Less, if it is stopped."""
        self._stopping.wait(seconds)

    def stop(self) -> None:
        self._stopping.set()
        for member in self.members:
            member.abort()

    def close(self) -> None:
        self.stop()
        for member in self.members:
            member.close()
