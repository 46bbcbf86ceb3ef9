"""What an operator changes: which node leads, and which nodes there are.

Each change is made by the notes in the log, so it works from any machine.  Its
result is read there, too.
"""

import contextlib
import time

from ..check.terminal import CannotRun
from ..quorum.history.record import Damaged
from ..quorum.history.record import node_name
from ..quorum.log.interface import Log
from ..quorum.log.interface import Unanswered
from ..quorum.log.notes import of_nodes
from ..quorum.log.notes import parse_note
from ..quorum.roles import stepdown

#: Seconds: a little more than a node that is asked may take; and the time
#: between two looks.
PATIENCE = stepdown.LONGEST_WAIT + 10
LOOK_EVERY = 0.2


def node_of(holder: bytes | None) -> str | None:
    """The node whose process has the lease."""
    return None if holder is None else holder.decode(
        'ascii', 'replace').partition(' ')[0]


def step_down(log: Log) -> tuple[str, str]:
    """Return the node that has led, and the node that leads now."""
    before = log.holder()
    if before is None or not stepdown.ask(log):
        raise CannotRun('no node has the lease: none leads')
    name = node_of(before) or ''
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        time.sleep(LOOK_EVERY)
        with contextlib.suppress(Unanswered):
            after = log.holder()
            if after not in (None, before):
                return name, node_of(after) or ''
            reason = stepdown.answer(log)
            if reason is not None:
                log.forget(stepdown.REQUEST)
                raise CannotRun(f'{name} goes on to lead: {reason}')
    raise CannotRun(
        f'{name} was asked to step down {PATIENCE:.0f} s ago, and has neither'
        ' done it nor said why: see its log')


def promote(log: Log, node: str) -> str | None:
    """Return the node that has led; None: this node leads already."""
    leader = node_of(log.holder())
    if leader == node:
        return None
    note = of_nodes(log).get(node_name(node))
    if note is None:
        raise CannotRun(
            f'there is no node {node} that follows this log (status lists'
            ' them)')
    if leader is None:
        raise CannotRun(
            'no node leads now: the first one that runs and has followed will'
            ' by itself')
    why_not = _why_it_could_not_lead(note)
    if why_not is not None:
        raise CannotRun(f'{node} could not lead now: {why_not}')
    before, after = step_down(log)
    if after != node:
        raise CannotRun(
            f'{before} has stepped down, and {after} leads now: it has got the'
            f' lease before {node}. Try again')
    return before


def _why_it_could_not_lead(note: bytes) -> str | None:
    try:
        health = parse_note(note).health
    except Damaged as error:
        return str(error)
    return None if health.could_lead else (
        health.trouble or 'it does not follow yet')


def forget(log: Log, node: str) -> None:
    if node_name(node) not in of_nodes(log):
        raise CannotRun(f'there is no note of a node {node} (status lists'
                        ' them)')
    log.forget(node_name(node))
