"""Nodes that write and follow, over a log whose calls fail, and one of whose
members is wrong: in any order.

`Histories` is a state machine for Hypothesis.  What it knows of the truth, it
knows from the engine: when a record of a writer takes effect, it is remembered
what all files should have behind it, by the record's link.  What the nodes
have is made by the fold.

The wrong member may take what all others refuse.  A node that reads there may
follow it, but never keeps that, and no writer leads by it.

Nobody leads without the lease.  So one that was led past does not believe that
it has it, by its own clock, and is not told then by one member alone that a
record is in the log.
"""

import threading
import typing
import zlib
from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import initialize
from hypothesis.stateful import invariant
from hypothesis.stateful import precondition
from hypothesis.stateful import rule

from fsyncstorage.quorum.history import fold
from fsyncstorage.quorum.history.batch import Batch
from fsyncstorage.quorum.history.batch import chunks
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import Epoch
from fsyncstorage.quorum.history.record import PackBegin
from fsyncstorage.quorum.history.record import PackEnd
from fsyncstorage.quorum.history.record import PackSwap
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.history.record import parse
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.leading.writer import Fenced
from fsyncstorage.quorum.leading.writer import Writer
from fsyncstorage.quorum.log import members
from fsyncstorage.quorum.log.interface import Missing
from fsyncstorage.quorum.log.interface import Trimmed
from fsyncstorage.quorum.log.interface import Unanswered
from fsyncstorage.quorum.log.outage import Outage
from fsyncstorage.quorum.log.outage import Patience
from fsyncstorage.quorum.log.reading import Reader
from fsyncstorage.quorum.log.reading import Refused

from .fakelog import MEMBERS
from .fakelog import Fault
from .samples import LOG
from .samples import MAGIC
from .samples import OTHER
from .samples import data
from .samples import following
from .samples import identify
from .wrongmember import EngineWithWrong
from .wrongmember import LogThroughOne
from .wrongmember import wrong_ends

NODES = 3
#: Seconds for which others wait, and for which its holder believes in it.
LEASE, BELIEVED = 10.0, 9.0
#: What a chunk has room for.
ROOM = 46

WHICH = strategies.integers(0, NODES - 1)
LENGTHS = strategies.sampled_from((1, 2, ROOM, ROOM + 1, 2 * ROOM + 3))
OF_ANY_CALL = Fault.NONE, Fault.BEFORE, Fault.AFTER, Fault.DELAYED


def impatient():
    """It tries nothing again."""
    at_once = threading.Event()
    at_once.set()
    return Patience(Outage('a test waits'), at_once)


def some_of(faults):
    """Half of the time, none."""
    return strategies.one_of(strategies.just([]), strategies.lists(
        strategies.sampled_from(faults), max_size=4))


FAULTS, OF_APPENDS = some_of(list(Fault)), some_of(OF_ANY_CALL)


class Chunked(Writer):
    """Its chunks are small."""

    def write(self, batch):
        self._begin([each.body for each in chunks(batch, ROOM)])


def packed(content, end):
    """What a pack makes of a file, up to this end: it depends on its input
    alone (I15)."""
    return MAGIC + content[end - end // 3:]


def checksum(content):
    return zlib.crc32(content).to_bytes(32, 'big')


class Task(typing.NamedTuple):
    """What a writer brings into the log."""

    becomes: Callable  # what the file is then, from what it was
    before: int        # where it ended
    last: int          # the number of its last record


class Begun(typing.NamedTuple):
    """A pack that is under way."""

    id: bytes
    end: int  # of what is packed


class Node:

    def __init__(self, engine):
        self.log = LogThroughOne(engine)
        self.state = fold.beginning(LOG, 0, len(MAGIC))
        #: The file: what it has behind its end does not count.
        self.content = MAGIC
        self.writer = self.task = None
        self.saved = self.state, self.content
        self.clock = lambda: engine.now
        #: Of the lease that it has, and until when it believes in it.
        self.term, self.until = None, 0.0

    def asks_for_the_lease(self):
        """Does it have it?"""
        begun = self.clock()
        term = self.log.hold(b'%d' % id(self), LEASE)
        if term and self.term in (None, term):
            self.term, self.until = term, begun + BELIEVED
        else:
            self.term, self.until = None, 0.0
        return self.has_lease()

    def has_lease(self):
        return self.clock() < self.until

    def save(self):
        """Only what it can go on from is kept: what it has written, or what a
        majority has."""
        try:
            is_confirmed = self.has_led or members.confirmed(
                self.log, self.state)
        except Unanswered:  # it was trimmed
            return
        if not is_confirmed:
            self.fall_back()
        elif self.state.incomplete is None:
            self.saved = self.state, self.content[:self.state.end]

    def fall_back(self):
        self.state, self.content = self.saved
        self.writer = None

    @property
    def has_led(self):
        return (self.writer is not None
                and self.state.writer == self.writer.id)

    @property
    def leads(self):
        """It may write something now."""
        return self.has_led and not self.writer.left

    def begin(self, becomes=lambda content: content):
        self.task = Task(
            becomes, self.state.end,
            self.state.place.sequence + self.writer.left)

    def has_written(self):
        """More of the writer's task is in the log."""
        self.state = self.writer.state
        if not self.writer.left:
            self.content = self.task.becomes(self.content[:self.task.before])

    def takes(self, state, record):
        """It applies what another one has written."""
        body, before = record.body, self.content
        if isinstance(body, Data):
            self.content = before[:record.position] + body.data
        elif isinstance(body, Epoch):
            self.content = before[:state.end]
        elif isinstance(body, PackSwap):
            self.content = packed(before, self.state.pack.end)
            assert checksum(self.content) == body.checksum
        self.state = state


class Histories(RuleBasedStateMachine):

    def __init__(self):
        super().__init__()
        self.engine = EngineWithWrong(LOG, self.landed)
        self.engine.phantom = self.learns
        self.nodes = [Node(self.engine) for _ in range(NODES)]
        #: What a file has behind a record, by the record's link.
        self.truth = {LOG: MAGIC}
        #: The states there, for those that forge what could follow, and the
        #: pack that is under way, which does not come from the fold.
        self.states = {LOG: self.nodes[0].state}
        self.packs = {LOG: None}
        self.tasks = {}  # the last one of each writer
        self.history = [LOG]  # the links of the log, in order
        self.epochs = {}  # where each begins in the log
        self.acknowledged = set()  # links
        self.writers = 0
        self.batches = 0
        self.lost = set()  # the links of what the log had, and lost

    def landed(self, raw):
        """A record of a writer takes effect."""
        record, place = self.learns(raw)
        self.history.append(place.link)
        if isinstance(record.body, Epoch):
            self.epochs[record.epoch] = place.sequence
        self.nothing_else_follows(place.link)

    def learns(self, raw):
        """What a record means, also one that only the wrong member has."""
        record, place = parse(raw), place_of(raw)
        before, link = record.previous, place.link
        if link not in self.truth:
            task, content = self.tasks[record.writer], self.truth[before]
            self.truth[link] = (task.becomes(content)
                                if place.sequence == task.last else content)
            self.states[link] = fold.step(self.states[before], raw).state
            self.packs[link] = self.pack_behind(
                record, self.packs[before], len(content))
        return record, place

    @staticmethod
    def pack_behind(record, before, end):
        if isinstance(record.body, PackBegin):
            return Begun(record.batch, end)
        if isinstance(record.body, Epoch | PackSwap | PackEnd):
            return None
        return before

    def nothing_else_follows(self, link):
        state, begun = self.states[link], self.packs[link]
        others = {pack.id for pack in self.packs.values()
                  if pack not in (None, begun)}
        for raw in forged(state, {OTHER, *others}):
            assert isinstance(fold.step(state, raw), fold.Refuse)

    # Writers

    def begins(self, node, *becomes):
        node.begin(*becomes)
        self.tasks[node.writer.id] = node.task

    def tries(self, node, faults):
        """Its writer tries until it is done, or out of faults and
        unanswered."""
        node.log.faults.extend(faults)
        done = False
        while not done:
            if node.state.writer != node.writer.id and not node.has_lease():
                node.writer = None  # it gives up, as it does not lead
                break
            try:
                done = node.writer.advance()
            except Unanswered:
                if node.log.faults:
                    continue
                break
            except Fenced:
                assert not self.is_written(node.writer)
                node.writer = None
                break
            node.has_written()
            self.is_acknowledged(node.writer.state)
        node.log.faults.clear()

    def gets_the_lease(self, node):
        """It waits until that of another one is over."""
        node.term = None
        while not node.asks_for_the_lease():
            self.engine.now += LEASE

    def is_written(self, writer):
        """Is the record there that it has offered?"""
        number, link = writer.state.place
        return (self.engine.first <= number + 1 < len(self.history)
                and self.history[number] == link
                and parse(self.engine.records[number]).writer == writer.id)

    def is_acknowledged(self, state):
        """I16: it is in the log, behind the record of its epoch and before
        that of the next one."""
        number = state.place.sequence
        assert self.history[number:number + 1] == [state.place.link]
        assert self.epochs[state.epoch] <= number
        assert self.epochs.get(state.epoch + 1, number + 1) > number
        self.acknowledged.add(state.place.link)

    def of(self, which, wanted):
        """One of the nodes of which this is true, or None."""
        nodes = [node for node in self.nodes if wanted(node)]
        return nodes[which % len(nodes)] if nodes else None

    def leading(self, which=0):
        return self.of(which, lambda node: node.leads)

    def following(self, which=0):
        return self.of(which, lambda node: node.writer is None)

    def trying(self, which=0):
        return self.of(which, lambda node: node.writer and node.writer.left)

    # (No lambdas: old releases of hypothesis parse this module for each, each
    # time that it is asked.)

    def delaying(self):
        return self.engine.delayed

    def logging(self):
        return self.engine.records

    def losing(self):
        return self.engine.records

    def misleading(self):
        return self.losing() and self.following()

    def restoring(self):
        return len(self.engine.records) > 3 and not self.lost

    @initialize(epochs=strategies.integers(1, 2),
                lengths=strategies.lists(LENGTHS, max_size=4),
                wrong=strategies.integers(0, MEMBERS - 1))
    def a_node_leads(self, epochs, lengths, wrong):
        self.engine.wrong = wrong
        node = self.nodes[0]
        for _ in range(epochs):
            self.leads(node)
        for length in lengths:
            self.writes(node, length)
            node.save()

    @precondition(following)
    @rule(which=WHICH, reads=strategies.booleans(), faults=OF_APPENDS)
    def lead(self, which, reads, faults):
        node = self.following(which)
        if reads:
            self.reads_all(node)
        self.leads(node, faults)

    def leads(self, node, faults=()):
        self.gets_the_lease(node)
        self.writers += 1
        node.writer = Chunked(
            node.log, node.state, identify(f'w{self.writers}'),
            node.has_lease)
        node.writer.lead(b'node'.ljust(16))
        self.begins(node)
        self.tries(node, faults)

    @precondition(leading)
    @rule(which=WHICH, length=LENGTHS, faults=OF_APPENDS)
    def write(self, which, length, faults):
        self.writes(self.leading(which), length, faults)

    def writes(self, node, length, faults=()):
        """The batch goes to the node's own file at once, too."""
        self.batches += 1
        end, written = node.state.end, bytes([self.batches % 251]) * length
        node.content = node.content[:end] + written
        node.writer.write(Batch(
            end, end + length,
            lambda at, length: written[at - end:at - end + length]))
        self.begins(node, lambda content: content + written)
        self.tries(node, faults)

    @precondition(leading)
    @rule(which=WHICH, again=strategies.booleans(), faults=OF_APPENDS)
    def pack(self, which, faults, again=False):
        """Begin a pack, or another one in its place, or finish it."""
        node = self.leading(which)
        pack = node.state.pack
        if pack is None or again:
            node.writer.say(PackBegin(bytes(8), True, b'1'))
            self.begins(node)
        else:
            new = packed(node.content[:node.state.end], pack.end)
            node.writer.say(PackSwap(pack.id, len(new), checksum(new)))
            self.begins(node, lambda content: packed(content, pack.end))
        self.tries(node, faults)

    def packing(self, which=0):
        return self.of(which, lambda node: node.leads and node.state.pack)

    @precondition(packing)
    @rule(which=WHICH, faults=OF_APPENDS)
    def give_up_a_pack(self, which, faults):
        node = self.packing(which)
        node.writer.say(PackEnd(node.state.pack.id))
        self.begins(node)
        self.tries(node, faults)

    @precondition(leading)
    @rule(which=WHICH, back=strategies.integers(0, 9))
    def trim(self, which, back):
        node = self.leading(which)
        node.writer.say(Trim(max(1, node.state.place.sequence - back)))
        self.begins(node)
        self.tries(node, [])
        if node.leads:
            self.engine.trim(max(1, node.state.place.sequence - 1 - back))

    @precondition(trying)
    @rule(which=WHICH, faults=OF_APPENDS)
    def go_on(self, which, faults):
        self.tries(self.trying(which), faults)

    @precondition(leading)
    @rule(which=WHICH)
    def renew(self, which):
        node = self.leading(which)
        if node.term is not None:
            node.asks_for_the_lease()

    @rule()
    def leases_are_over(self):
        self.engine.now += LEASE

    @precondition(delaying)
    @rule(number=strategies.integers(0, 5))
    def deliver(self, number):
        self.engine.deliver(number % len(self.engine.delayed))

    # Nodes

    @precondition(following)
    @rule(which=WHICH, member=strategies.integers(0, MEMBERS - 1),
          back=strategies.integers(0, 3), faults=FAULTS)
    def follow(self, which, member, back, faults):
        node = self.following(which)
        node.log.faults.extend(faults)
        for _ in range(len(faults) + 1):
            self.reads(node, node.state.place.sequence + 1 - back, member)
        node.log.faults.clear()

    @precondition(following)
    @rule(which=WHICH, faults=FAULTS)
    def ask(self, which, faults):
        """All members together: what they say is true."""
        node = self.following(which)
        node.log.faults.extend(faults)
        try:
            self.asks(node)
        except Unanswered:
            pass
        node.log.faults.clear()

    def asks(self, node):
        found = members.ask(node.log, node.state)
        if isinstance(found, fold.Apply):
            node.takes(*found)
        elif found is None:
            assert self.is_at_the_end(node)
        else:
            assert not self.can_go_on(node)

    def is_at_the_end(self, node):
        return node.state.place == self.engine.head

    def can_go_on(self, node):
        """The log has its last record, and what is behind that."""
        number, link = node.state.place
        return link in self.history and number + 1 >= self.engine.first

    def reads(self, node, sequence, member):
        try:
            found = node.log.read(max(1, sequence), member)
        except (Missing, Trimmed, Unanswered):
            return
        for raw in found:
            decided = fold.step(node.state, raw)
            if isinstance(decided, fold.Apply):
                node.takes(*decided)
            elif isinstance(decided, fold.Refuse):
                assert not self.has(node, raw)
                break

    def comes_to_the_end(self, node):
        """Where it cannot go on, it starts again from what it has kept, with
        another member."""
        for _ in range(MEMBERS + 1):
            if not self.is_stuck(node):
                return
            node.fall_back()
        assert self.no_majority_is_sound()
        self.heal()
        node.fall_back()
        assert not self.is_stuck(node)

    def no_majority_is_sound(self):
        """Beside the wrong one another has damage."""
        return any(member != self.engine.wrong
                   for member, _ in self.engine.damaged)

    def is_stuck(self, node):
        """No last word is known, or it is about what no majority has."""
        reader = Reader(node.log, node.state)
        try:
            for applied in reader.to_the_end(impatient()):
                node.takes(*applied)
        except Refused:
            assert not self.can_go_on(node)
        except Unanswered:
            return True
        try:
            return node.state != node.saved[0] and not members.confirmed(
                node.log, node.state)
        except Unanswered:
            return True

    def reads_all(self, node):
        """From one member after the other, until it comes no further."""
        tries = 0
        while tries < MEMBERS:
            before = node.state
            self.reads(node, before.place.sequence + 1, tries)
            tries = tries + 1 if node.state == before else 0

    def has(self, node, raw):
        """Was it applied, on the way to where the node is?"""
        number = node.state.place.sequence
        return (number < len(self.history)
                and node.state.place.link == self.history[number]
                and raw in self.engine.records[:number])

    @rule(which=WHICH, saves=WHICH, other=WHICH)
    def crash(self, which, saves, other):
        """It goes on from what it, or another one, has kept."""
        self.nodes[saves].save()
        node, other = self.nodes[which], self.nodes[other]
        node.saved = other.saved
        node.fall_back()

    # The log

    @precondition(logging)
    @rule(beside=strategies.integers(0, MEMBERS - 2),
          number=strategies.integers(0, 30), bit=strategies.integers(0, 2000))
    def damage(self, beside, number, bit):
        """One member stays sound."""
        self.engine.damage(
            (self.engine.wrong + beside) % MEMBERS,
            1 + number % len(self.engine.records), bit)

    @rule(which=strategies.integers(0, 9))
    def lie(self, which):
        """The wrong member says wrong ends, or the right ones again."""
        lies = [None, *wrong_ends(self.engine.ends())]
        self.engine.lie = lies[which % len(lies)]

    @precondition(losing)
    @rule(back=strategies.integers(0, 3))
    def lose(self, back):
        """The wrong member has lost its last records."""
        number = max(0, len(self.history) - 1 - back)
        self.engine.lose(number, Place(number, self.history[number]))

    @precondition(misleading)
    @rule(which=WHICH, back=strategies.integers(0, 3), faults=OF_APPENDS)
    def mislead(self, which, back, faults):
        """Of all members, a node reads and writes only the wrong one."""
        self.lose(back)
        node = self.following(which)
        self.connect(self.nodes.index(node), self.engine.wrong)
        self.reads(node, node.state.place.sequence + 1, self.engine.wrong)
        self.leads(node, faults)

    @rule()
    def heal(self):
        """The wrong member is replaced by a new one."""
        self.engine.replace()

    @rule(which=WHICH, member=strategies.integers(0, MEMBERS - 1))
    def connect(self, which, member):
        """This node's appends go to another member."""
        self.nodes[which].log.through = member

    @precondition(restoring)
    @rule(back=strategies.integers(1, 3))
    def restore(self, back):
        """The log has lost its end."""
        number = self.engine.head.sequence - back
        self.lost.update(self.history[number + 1:])
        del self.history[number + 1:]
        self.engine.restore(Place(number, self.history[-1]))
        self.engine.first = 1
        self.epochs = {epoch: begins for epoch, begins in self.epochs.items()
                       if begins <= number}
        self.acknowledged &= set(self.history)

    # What holds

    @invariant()
    def each_has_what_the_log_has_up_to_some_record(self):
        for node in self.nodes:
            content = self.truth[node.state.place.link]
            assert node.content[:node.state.end] == content
            assert len(content) == node.state.end
            assert (node.state.pack and node.state.pack[:2]) == (
                self.packs[node.state.place.link])

    @invariant()
    def what_was_acknowledged_is_in_the_log(self):
        assert self.acknowledged <= set(self.history)

    @invariant()
    def what_is_kept_was_in_the_log(self):
        """Never what only the wrong member has."""
        for node in self.nodes:
            assert node.saved[0].place.link in self.lost.union(self.history)

    def teardown(self):
        """Those of this log that read on come to its end; others stay at what
        they had of it before it was lost."""
        for node in self.nodes:
            node.writer = None
            node.save()
            self.comes_to_the_end(node)
            number, link = node.state.place
            if link in self.history:
                assert number + 1 < self.engine.first or (
                    link == self.history[-1])
            else:
                assert link in self.lost
        self.each_has_what_the_log_has_up_to_some_record()


def forged(state, packs):
    """Records that do not follow a state, each for one reason only.

    None of these packs is under way.
    """
    after, at = state.place.sequence + 1, state.next
    chunk = data(state, b'x', state.incomplete and state.incomplete.end)
    fields = {'batch': state.incomplete.id if state.incomplete
              else b'forged'.ljust(16)}
    yield following(state, chunk, **fields, log=OTHER)
    yield following(state, chunk, **fields, sequence=after + 1)
    yield following(state, chunk, **fields, previous=OTHER)
    yield following(state, chunk, **fields, writer=OTHER)
    yield following(state, chunk, **fields, epoch=state.epoch + 1)
    if state.epoch > 1:
        yield following(state, chunk, **fields, epoch=state.epoch - 1)
    yield following(state, chunk, **fields, generation=state.generation + 1)
    yield following(
        state, Epoch(OTHER), state.end, epoch=state.epoch + 2, writer=OTHER)
    yield following(
        state, Epoch(OTHER), state.end, epoch=state.epoch, writer=OTHER)
    yield following(
        state, Epoch(OTHER), state.end + 1, epoch=state.epoch + 1,
        writer=OTHER)
    yield following(state, Data(
        state.end, chunk.end + 1, (), b'x'), at + 1, **fields)
    for pack in packs:
        yield following(state, PackSwap(pack, 4, bytes(32)), state.end)
        yield following(state, PackEnd(pack), state.end)
    if state.incomplete is None:
        yield following(state, Trim(after + 1))
    else:
        yield following(state, chunk, batch=OTHER)
        yield following(state, replace(chunk, end=chunk.end + 1), **fields)
        yield following(state, Trim(1), state.end)
