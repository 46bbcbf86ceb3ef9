"""What each start checks before a node relies on this etcd.

A start is refused, with advice, if a member is older than 3.5.6, if fewer than
three members vote, if the addresses name one member twice, two clusters or a
learner, if etcd does not let us in, if there is too little room for the log,
or if what is below the prefix is no log.
Members that do not answer are left out, as long as one answers.  If none does,
the check raises Unanswered, and a start waits.  It asks again and again: so an
unanswered check logs nothing, and the error has what is wrong with each
member.

A start may happen unattended, years after the set-up, and then one member may
be wrong: its certificate has expired, it is about to be replaced, or it was
begun anew as a cluster of its own.  So while a majority is sound, what is
wrong with one member is only logged as an error.  The same holds if one of
three members was removed, or if some have too little room.  Where a log or a
node begins, all of this is refused (`strict`).

3.5.6: in earlier releases, members may come to give different answers after a
crash within a defragmentation, or with users switched on.

`survey` is what an operator is shown of the members.
"""

import logging
import re
import typing
from collections.abc import Callable
from collections.abc import Sequence

from ..history.record import Damaged
from ..log.interface import Unanswered
from . import messages
from .cluster import Cluster
from .engine import EtcdLog
from .keys import opened_identity
from .messages import Message
from .messages import Question
from .messages import Status
from .settings import FEWEST
from .trouble import FULL
from .trouble import Lost
from .trouble import Refused
from .trouble import Trouble
from .trouble import fault
from .trouble import legible
from .trouble import unanswered

logger = logging.getLogger(__name__)

OLDEST = 3, 5, 6
_VERSION = re.compile(r'(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?!\d)')

#: The smallest quota of a member, for each byte of `log-limit`: votes may
#: stage as much again, what was removed takes room until it is compacted, and
#: not everything fits into free pages.
QUOTA_FACTOR = 3

MEANING = {
    'NOSPACE': FULL,
    'CORRUPT': ('members have different data: replace the one that differs'
                ' (etcdctl endpoint hashkv --cluster), then etcdctl alarm'
                ' disarm'),
}

T = typing.TypeVar('T')

#: What is to be logged, once each, with its level.
Remarks = dict[str, int]


class Survey(typing.NamedTuple):
    #: By the addresses of all members; for one that did not answer, the error.
    members: dict[str, Status | Trouble]
    #: How many members vote, according to etcd; None: it did not answer.
    voting: int | None
    #: The alarms of members that are full, or damaged, by etcd's names.
    alarms: Sequence[str]


def survey(log: EtcdLog) -> Survey:
    cluster = log.cluster
    members = _each(cluster, messages.STATUS, messages.status)
    for member in cluster.members:
        status = members[str(member)]
        if isinstance(status, Status):
            cluster.is_of(member, status.cluster)
    for member in cluster.members:
        try:
            cluster.refuse_another(member)
        except Trouble as error:
            members[str(member)] = error
    try:
        voting = cluster.ask(messages.MEMBERS, messages.voting)
        alarms = cluster.ask(messages.ALARMS, messages.alarms)
    except Unanswered:
        return Survey(members, None, ())
    return Survey(members, voting, alarms)


def check(log: EtcdLog, limit: int = 0, strict: bool = False) -> None:
    """Raise Refused or Unanswered if no node should rely on this etcd.

    `limit` is the most bytes that the log may have, if that is known.
    """
    remarks: Remarks = {}
    try:
        _check(log, limit, strict, remarks)
    except Refused:
        _log(remarks)
        raise
    except Unanswered as error:
        faults = [words for words, level in remarks.items()
                  if level >= logging.ERROR and words not in str(error)]
        raise type(error)('. '.join([str(error), *faults])) from error
    _log(remarks)


def _log(remarks: Remarks) -> None:
    for words, level in remarks.items():
        logger.log(level, '%s', words)


def _check(log: EtcdLog, limit: int, strict: bool, remarks: Remarks) -> None:
    found = survey(log)
    allowed = 0 if strict else (log.members - 1) // 2
    answered = _those_that_answer(found.members, allowed, remarks, _fault_of)
    _refuse_one_twice(answered)
    _refuse_two_clusters(found.members, strict)
    _check_prefix(log, allowed, remarks)
    if found.voting is None:
        raise _no_majority(found.members)
    if found.voting < FEWEST:
        too_few = (
            f'etcd: the cluster has {found.voting} members that vote, and'
            f' needs {FEWEST}: with fewer, none may be away. Add members, on'
            ' machines that do not fail together (etcdctl member add)')
        if strict or found.voting < FEWEST - 1:
            raise Refused(too_few)
        remarks[too_few] = logging.ERROR
    for alarm in found.alarms:
        remarks[f'etcd: alarm {alarm}. {MEANING.get(alarm, "")}'] = (
            logging.ERROR)
    _check_room(answered, limit, strict, remarks)
    log.find_leader()


def _each(cluster: Cluster, question: Question,
          read: Callable[[Message], T]) -> dict[str, T | Trouble]:
    """The answer of each member, by its address."""
    found: dict[str, T | Trouble] = {}
    for member in cluster.members:
        try:
            found[str(member)] = read(member.ask(question, cluster.share()))
        except Trouble as error:
            found[str(member)] = error
    return found


def _those_that_answer(
        found: dict[str, T | Trouble], allowed: int, remarks: Remarks,
        fault_of: Callable[[T], str | None] = lambda answer: None
        ) -> dict[str, T]:
    """Raise Refused if more than `allowed` members have a fault."""
    faults: list[str] = []
    for name, each in found.items():
        if isinstance(each, Trouble):
            wrong = fault(each)
            if wrong is None:
                remarks[f'etcd: {name} does not answer: {each}'] = (
                    logging.WARNING)
        else:
            wrong = fault_of(each)
        if wrong is not None:
            faults.append(f'{name}: {wrong}')
    if len(faults) > allowed:
        raise Refused(f'etcd: {faults[0]}')
    for words in faults:
        remarks['etcd: a member is not sound, so that no other one may be'
                f' lost: {words}'] = logging.ERROR
    answered = {name: each for name, each in found.items()
                if not isinstance(each, Trouble)}
    if not answered:
        raise _no_majority(found)
    return answered


def _no_majority(found: dict[str, T | Trouble]) -> Unanswered:
    """The error for a check that has to wait for members."""
    troubles = {name: each for name, each in found.items()
                if isinstance(each, Trouble)}
    error = unanswered(troubles)
    words = f'no majority of the members of etcd answers: {error}'
    if any(isinstance(each, Lost) for each in troubles.values()):
        words += '. Is "etcd" in <quorum> right?'
    return type(error)(words)


def _fault_of(status: Status) -> str | None:
    if release(status) < OLDEST:
        return (f'it is of release {status.version}: before 3.5.6 members'
                ' could come to have different data. Upgrade it')
    if status.learner:  # etcd lets it answer nothing but its status
        return ('it is a learner, which does not vote: name another member, or'
                ' promote this one (etcdctl member promote)')
    return None


def _refuse_one_twice(answered: dict[str, Status]) -> None:
    names: dict[int, str] = {}
    for name, status in answered.items():
        other = names.setdefault(status.id, name)
        if other != name:
            raise Refused(
                f'etcd: {other} and {name} are the same member: name each'
                ' once, and at least three')


def _refuse_two_clusters(found: dict[str, Status | Trouble],
                         strict: bool) -> None:
    """(If most are of one cluster, the others are in trouble: see `survey`.)
    """
    answered = [each for each in found.values() if isinstance(each, Status)]
    clusters = {status.cluster for status in answered}
    if len(clusters) < 2:
        return
    words = ('etcd: the addresses are those of members of'
             f' {len(clusters)} different clusters')
    if strict or len(answered) == len(found):
        raise Refused(words)
    raise Unanswered(words)


def _check_room(answered: dict[str, Status], limit: int, strict: bool,
                remarks: Remarks) -> None:
    """A member with too little room would make the others stop, too.  (But it
    may have got another quota while this node ran.)"""
    words = [
        f'etcd: {name} is full at {status.quota} bytes. For a log-limit of'
        f' {limit} set its --quota-backend-bytes to'
        f' {QUOTA_FACTOR * limit} or more; or log-limit to'
        f' {status.quota // QUOTA_FACTOR} or less'
        for name, status in answered.items()
        if 0 < status.quota < QUOTA_FACTOR * limit]
    if strict and words:
        raise Refused(words[0])
    for each in words:
        remarks[each] = logging.ERROR


def _check_prefix(log: EtcdLog, allowed: int, remarks: Remarks) -> None:
    """Below the prefix is a log of ours, or nothing.  (One member may be
    damaged.)"""
    keys = log.keys

    def other(answer: Message) -> str | None:
        """What else is there."""
        identity, some = messages.ranges(answer, 2)
        value = messages.one(identity)
        if value is None:
            return legible(f'a key {some.kvs[0].key!r}') if some.kvs else None
        try:
            opened_identity(keys.log, value)
        except Damaged as error:
            return str(error)
        return None

    reasons = list(filter(None, _those_that_answer(_each(
        log.cluster, messages.transaction([
            messages.shown(keys.log),
            messages.shown(keys.all, 1, only=True)]), other),
        allowed, remarks).values()))
    if len(reasons) > 1:
        raise Refused(
            'etcd: something else than a log of ours is below the prefix'
            f' {keys.all.start.decode()}: {reasons[0]}. Name another prefix:'
            ' one for each storage')


def release(status: Status) -> tuple[int, ...]:
    found = _VERSION.match(status.version)
    return tuple(map(int, found.groups())) if found else (0,)
