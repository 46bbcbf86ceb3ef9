"""What the log, its members and the nodes say, as plain data.

If a member does not answer, that is a part of the result.  If too few answer,
a value that only a majority knows is None, and the reason is in `trouble`.

However long the log is, only a few of its records are read.
"""

import contextlib
import time
from typing import Any

from persistent.TimeStamp import TimeStamp

from ..quorum.etcd import checks
from ..quorum.etcd.engine import EtcdLog
from ..quorum.etcd.messages import Status
from ..quorum.etcd.settings import FEWEST
from ..quorum.etcd.trouble import Trouble
from ..quorum.history.record import Damaged
from ..quorum.history.record import Data
from ..quorum.history.record import Ends
from ..quorum.history.record import Record
from ..quorum.history.record import Unknown
from ..quorum.history.record import parse
from ..quorum.log import members
from ..quorum.log.interface import Missing
from ..quorum.log.interface import Trimmed
from ..quorum.log.interface import Unanswered
from ..quorum.log.notes import Note
from ..quorum.log.notes import of_nodes
from ..quorum.log.notes import parse_note
from . import memory
from .changing import node_of

#: How many seconds a node may be behind, and which share of etcd's quota may
#: be in use, without a warning.
LATE = 60
NEARLY_FULL = 0.8
#: Bytes of a member's memory without a warning.
MUCH_MEMORY = 2 << 30
#: Seconds within which a running node notes how it is, several times: the time
#: between two looks, and the age of a note that makes the second one needed.
NOTED_WITHIN = OLD = 3.0
#: Records that are read to find the first commit that a node does not have.
MOST_READ = 20


def look(log: EtcdLog, name: str) -> dict[str, Any]:
    survey = checks.survey(log)
    found: dict[str, Any] = {
        'name': name, 'log': None, 'epoch': None, 'lease': None, 'nodes': None,
        'trouble': None}
    head = 0
    try:
        ends = members.ends(log)
        head = ends.head.sequence
        found.update(_of_log(log, ends))
    except (Missing, Unanswered) as error:
        found['trouble'] = str(error)
    found.update(
        members=[_member(log, number, address, status, head)
                 for number, (address, status)
                 in enumerate(survey.members.items())],
        voting=survey.voting, alarms=list(survey.alarms))
    found['warnings'] = list(_warnings(found))
    return found


# The log

def _of_log(log: EtcdLog, ends: Ends) -> dict[str, Any]:
    last = _record(log, ends.head.sequence)
    leader = node_of(log.holder())
    return {
        'log': {
            'identity': ends.log.hex(), 'first': ends.first,
            'head': ends.head.sequence},
        'epoch': last and _epoch(last),
        'lease': leader, 'nodes': _nodes(log, ends, leader)}


def _record(log: EtcdLog, sequence: int) -> Record | None:
    """None if it is not there, or no member has it whole."""
    for member in None, *range(log.members):
        with contextlib.suppress(Damaged, Unknown, Trimmed):
            for raw in log.read(sequence, member)[:1]:
                record = parse(raw)
                if record.sequence == sequence:
                    return record
    return None


def _epoch(last: Record) -> dict[str, Any]:
    return {'number': last.epoch, 'writer': last.writer.hex(),
            'generation': last.generation}


def _name(node: bytes) -> str:
    return node.rstrip(b'\0').decode('ascii', 'backslashreplace')


# The nodes

def _nodes(log: EtcdLog, ends: Ends,
           leader: str | None) -> list[dict[str, Any]]:
    notes = _notes(log)
    if leader is not None:
        notes.setdefault(leader, None)
    def nodes_of(notes: dict[str, Note | None]) -> list[dict[str, Any]]:
        return [_node(log, ends, name, note, name == leader)
                for name, note in sorted(notes.items())]

    found = nodes_of(notes)
    if any(each['records_behind'] or each['silent'] for each in found):
        time.sleep(NOTED_WITHIN)
        # What was there at the first look is what each should have by now.
        later = {**notes, **_notes(log)}
        found = nodes_of(later)
        for each in found:
            before, now = notes.get(each['node']), later[each['node']]
            each['stands'] = bool(each['records_behind']) and (
                before and before.place) == (now and now.place)
            # (The clock of its machine may differ from ours.)
            each['silent'] = each['silent'] and before == now
    return found


def _notes(log: EtcdLog) -> dict[str, Note | None]:
    """What each node has said; None if its note cannot be read."""
    found: dict[str, Note | None] = {}
    for name, raw in of_nodes(log).items():
        found[_name(name)] = None
        with contextlib.suppress(Damaged):
            found[_name(name)] = parse_note(raw)
    return found


def _node(log: EtcdLog, ends: Ends, name: str, note: Note | None,
          leads: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        'node': name, 'leads': leads, 'sequence': None,
        'records_behind': None, 'since': None, 'trimmed': False,
        'stands': False, 'heard': None, 'silent': False, 'trouble': None}
    if note is not None:
        heard = note.health.time
        found.update(heard=heard, silent=abs(time.time() - heard) > OLD,
                     trouble=note.health.trouble or None)
    # The leader has all that there is, whatever it has noted.
    place = ends.head if leads else note and note.place
    if place is None:
        return found
    sequence = place.sequence
    found.update(
        sequence=sequence,
        records_behind=max(0, ends.head.sequence - sequence),
        trimmed=sequence + 1 < ends.first)
    if not found['trimmed']:
        found['since'] = _first_commit(
            log, range(sequence + 1, ends.head.sequence + 1)[:MOST_READ])
    return found


def _first_commit(log: EtcdLog, sequences: range) -> float | None:
    """When the first commit in these records was made; None if none is there.
    """
    for sequence in sequences:
        record = _record(log, sequence)
        body = record and record.body
        if (record is not None and isinstance(body, Data) and body.data
                and record.position == body.begin):
            return float(TimeStamp(body.data[:8]).timeTime())
    return None


# The members

def _member(log: EtcdLog, number: int, address: str,
            status: Status | Trouble, head: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        'address': address, 'version': None, 'leads': False, 'learner': False,
        'size': None, 'in_use': None, 'quota': None, 'memory': None,
        'head': None, 'lacks': False, 'trouble': None}
    if isinstance(status, Trouble):
        found['trouble'] = str(status)
        return found
    found.update(
        version=status.version, leads=status.leads, learner=status.learner,
        size=status.size, in_use=status.in_use, quota=status.quota or None,
        memory=memory.resident(address, log.settings))
    with contextlib.suppress(Missing, Unanswered):
        found['head'] = log.ends(number).head.sequence
    # No answer is older than its question, and `head` was read before.
    found['lacks'] = (found['head'] or 0) < head
    return found


# What an operator should do something about

def _warnings(found: dict[str, Any]) -> Any:
    yield from _of_the_members(found)
    for alarm in found['alarms']:
        meaning = checks.MEANING.get(alarm, '')
        yield f'etcd has an alarm, {alarm}. {meaning}'.strip()
    if found['log'] is not None:
        yield from _of_the_nodes(found)
    elif found['voting'] is not None:
        yield f'{found["trouble"]}: bootstrap, on the first node, begins one'


def _of_the_members(found: dict[str, Any]) -> Any:
    members, voting = found['members'], found['voting']
    silent = [each['address'] for each in members if each['trouble']]
    if voting is None:
        yield ('no majority of the members answers: commits wait until one'
               ' does')
    elif voting < FEWEST:
        yield (f'etcd has {voting} members that vote, so none of them may'
               f' fail: {FEWEST} are needed, on machines that do not fail'
               ' together')
    elif silent:
        yield (f'{len(silent)} of {len(members)} members do not answer'
               f' ({" ".join(silent)}): when a majority does not, commits'
               ' wait')
    for each in members:
        if each['lacks'] and not each['trouble']:
            yield (f'{each["address"]} has lost records that a majority has,'
                   ' or its copy is damaged: replace this member, with an'
                   ' empty directory')
        if each['quota'] and each['in_use'] > NEARLY_FULL * each['quota']:
            yield (f'{each["address"]} uses {each["in_use"]} of'
                   f' {each["quota"]} bytes: when it is full, commits wait')
        if (each['memory'] or 0) > MUCH_MEMORY:
            yield (f'{each["address"]} has {each["memory"]} bytes of memory:'
                   ' are its options those of the documents? A member that'
                   ' was behind is smaller after a restart')


def _of_the_nodes(found: dict[str, Any]) -> Any:
    leader, nodes = found['lease'], found['nodes']
    if leader is None:
        yield 'no node has the lease: none leads'
    others = [each for each in nodes if not each['leads']]
    if not others:
        yield ('the log knows no other node: nobody can take over, and what'
               ' is trimmed from it is on one disk only')
    now = time.time()
    for each in others:
        if each['sequence'] is None:
            yield (f'the note of {each["node"]} in the log cannot be read:'
                   ' nothing is removed from the log until that node is'
                   f' forgotten (fsync-quorum forget {each["node"]})')
        elif each['trimmed']:
            yield (f'{each["node"]} cannot follow: the log does not have what'
                   f' comes next for it. fsync-quorum forget {each["node"]};'
                   ' and then, if it is to come back, move its files away, and'
                   ' make it anew there (fsync-quorum bootstrap --from)')
        elif each['since'] is not None and now - each['since'] > LATE:
            yield (f'{each["node"]} lacks commits of the last'
                   f' {(now - each["since"]) / 60:.0f} minutes')
        elif each['stands'] and not each['silent']:
            yield (f'{each["node"]} is behind, and has kept nothing for'
                   f' {NOTED_WITHIN:.0f} seconds')
    for each in nodes:
        if each['silent'] and each['heard']:
            yield (f'{each["node"]} has said nothing for'
                   f' {max(0, now - each["heard"]):.0f} seconds: does it run?')
        elif each['silent']:
            yield f'{each["node"]} has not begun yet: start it'
        elif each['trouble']:
            yield f'{each["node"]} is in trouble: {each["trouble"]}'
