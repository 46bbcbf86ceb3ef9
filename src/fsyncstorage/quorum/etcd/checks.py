"""What each start checks before a node relies on this etcd.

Wrong is: a member that is older than 3.5.6 or a learner, fewer than three that
vote, one under two addresses, two clusters, an etcd that does not let us in,
too little room for the log, something else than a log below the prefix.

Where a log or a node begins, all of this is refused (`strict`).  A later start
may happen unattended, years after the set-up: then what is wrong is logged as
an error, and the start goes on, or waits if no majority answers.  It asks
again and again: so an unanswered check logs nothing, and the error has what is
wrong with each member.

3.5.6: in earlier releases, members may come to give different answers after a
crash within a defragmentation, or with users switched on.

`survey` is what an operator is shown of the members.
"""

import logging
import re
import time
import typing
from collections.abc import Iterator
from collections.abc import Sequence

from ..history.record import Damaged
from ..log.interface import Unanswered
from . import messages
from .engine import EtcdLog
from .keys import Keys
from .keys import opened_identity
from .messages import Message
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


class Survey(typing.NamedTuple):
    #: By the addresses of all members; for one that did not answer, the error.
    members: dict[str, Status | Trouble]
    #: How many members vote, according to etcd; None: it did not answer.
    voting: int | None
    #: The alarms of members that are full, or damaged, by etcd's names.
    alarms: Sequence[str]


def survey(log: EtcdLog) -> Survey:
    cluster = log.cluster
    members = {str(member): status for member, status in cluster.statuses(
        cluster.share).items()}
    try:
        voting = cluster.ask(messages.MEMBERS, messages.voting)
        alarms = cluster.ask(messages.ALARMS, messages.alarms)
    except Unanswered:
        return Survey(members, None, ())
    return Survey(members, voting, alarms)


def check(log: EtcdLog, limit: int = 0, strict: bool = False) -> None:
    """Raise Refused if no node should begin with this etcd; Unanswered if a
    node cannot begin yet.

    `limit` is the most bytes that the log may have, if that is known.
    """
    found = survey(log)
    wrong = [*dict.fromkeys(_what_is_wrong(log, found, limit))]
    if strict and wrong:
        raise Refused(f'etcd: {wrong[0]}')
    if found.voting is None:
        raise _no_majority(found.members, wrong)
    for words in wrong:
        logger.error('etcd is not as a node needs it: %s', words)
    for alarm in found.alarms:
        logger.error('etcd: alarm %s. %s', alarm, MEANING.get(alarm, ''))
    for name, each in found.members.items():
        if isinstance(each, Trouble) and fault(each) is None:
            logger.warning('etcd: %s does not answer: %s', name, each)
    log.find_leader()


def _what_is_wrong(log: EtcdLog, found: Survey, limit: int) -> Iterator[str]:
    yield from _of_troubles(found.members)
    statuses = {name: each for name, each in found.members.items()
                if isinstance(each, Status)}
    names: dict[int, str] = {}
    for name, status in statuses.items():
        if (words := _of_status(status, limit)) is not None:
            yield f'{name}: {words}'
        other = names.setdefault(status.id, name)
        if other != name:
            yield (f'{other} and {name} are the same member: name each once,'
                   ' and at least three')
    # (If most are of one cluster, the others are in trouble: see `survey`.)
    clusters = {status.cluster for status in statuses.values()}
    if len(clusters) > 1:
        yield f'the addresses are those of {len(clusters)} different clusters'
    if found.voting is not None and found.voting < FEWEST:
        yield (f'the cluster has {found.voting} members that vote, and needs'
               f' {FEWEST}: with fewer, none may be away. Add members, on'
               ' machines that do not fail together (etcdctl member add)')
    yield from _of_the_prefix(log)


def _of_troubles(found: dict[str, Status | Trouble]) -> Iterator[str]:
    for name, each in found.items():
        if isinstance(each, Trouble) and (wrong := fault(each)) is not None:
            yield f'{name}: {wrong}'


def _no_majority(found: dict[str, Status | Trouble],
                 wrong: Sequence[str]) -> Unanswered:
    """The error for a check that has to wait for members."""
    troubles = {name: each for name, each in found.items()
                if isinstance(each, Trouble)}
    error = unanswered(troubles)
    words = f'no majority of the members of etcd answers: {error}'
    if any(isinstance(each, Lost) for each in troubles.values()):
        words += '. Is "etcd" in <quorum> right?'
    return type(error)('. '.join(
        [words, *(each for each in wrong if each not in words)]))


def _of_status(status: Status, limit: int) -> str | None:
    if release(status) < OLDEST:
        return (f'it is of release {status.version}: before 3.5.6 members'
                ' could come to have different data. Upgrade it')
    if status.learner:  # etcd lets it answer nothing but its status
        return ('it is a learner, which does not vote: name another member, or'
                ' promote this one (etcdctl member promote)')
    if 0 < status.quota < QUOTA_FACTOR * limit:
        return (f'it is full at {status.quota} bytes. For a log-limit of'
                f' {limit} set its --quota-backend-bytes to'
                f' {QUOTA_FACTOR * limit} or more; or log-limit to'
                f' {status.quota // QUOTA_FACTOR} or less')
    return None


def _of_the_prefix(log: EtcdLog) -> Iterator[str]:
    """Below the prefix is a log of ours, or nothing."""
    keys, cluster = log.keys, log.cluster
    question = messages.transaction([
        messages.shown(keys.log), messages.shown(keys.all, 1, only=True)])
    for member in cluster.members:
        try:
            other = _other(keys, member.ask(
                question, time.monotonic() + cluster.share))
        except Trouble as error:
            if (wrong := fault(error)) is not None:
                yield f'{member}: {wrong}'
        else:
            if other is not None:
                yield (f'{member}: something else than a log of ours is below'
                       f' the prefix {keys.all.start.decode()}: {other}. Name'
                       ' another prefix: one for each storage')


def _other(keys: Keys, answer: Message) -> str | None:
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


def release(status: Status) -> tuple[int, ...]:
    found = _VERSION.match(status.version)
    return tuple(map(int, found.groups())) if found else (0,)
