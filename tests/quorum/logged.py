"""A database that is written into a log in memory, by one writer after the
other; and the files of nodes that follow it."""

import contextlib
import os
import threading
import typing

from fsyncstorage import datafile
from fsyncstorage.pack.agreed import VERSION
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.following.rejoin import rejoin
from fsyncstorage.quorum.following.repacking import Late
from fsyncstorage.quorum.following.repacking import Options
from fsyncstorage.quorum.history.batch import Batch
from fsyncstorage.quorum.history.batch import chunks
from fsyncstorage.quorum.history.fold import Apply
from fsyncstorage.quorum.history.fold import beginning
from fsyncstorage.quorum.history.fold import step
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import Epoch
from fsyncstorage.quorum.history.record import PackBegin
from fsyncstorage.quorum.history.record import PackEnd
from fsyncstorage.quorum.history.record import PackSwap
from fsyncstorage.quorum.history.record import place_of
from fsyncstorage.quorum.leading.writer import Writer
from fsyncstorage.quorum.log.outage import Outage
from fsyncstorage.quorum.log.outage import Patience
from fsyncstorage.quorum.log.reading import Reader

from ..format import hostilefiles
from ..support import PATIENCE
from ..support import TestCase
from ..support import oid
from .fakelog import Engine
from .fakelog import FakeLog
from .packed import becoming
from .packed import packed
from .samples import LOG
from .samples import MAGIC
from .samples import SELF
from .samples import following
from .samples import identify
from .samples import settle

NODE = b'node'.ljust(16)
#: What a chunk has room for, so that a transaction has some.
ROOM = 100
OBJECTS = 50
#: A process of its own takes longer than the pack of a small file.
IN_PROCESS = Options(own_process=False, keep_old=False)
#: The beginning of a log, and of each file that follows it.
BEGINNING = beginning(LOG, 0, len(MAGIC))


class Chunked(Writer):
    """Its chunks are small."""

    def write(self, batch):
        self._begin([each.body for each in chunks(batch, ROOM)])


class Logged:
    """What one writer after the other writes into a log.

    It goes on from any log, whoever has written that.
    """

    #: Of so many there are new revisions, again and again.
    objects = OBJECTS

    def __init__(self, engine=None, name='w'):
        self.engine = Engine(LOG) if engine is None else engine
        self.file = hostilefiles.File()
        self._name = name
        self._writers = 0
        self.writer = None
        found = contents(self.engine.records)
        self.file.data[:] = found.content
        self.file.tid = len(found.content)  # later than all before
        self._state = found.state

    @property
    def content(self):
        return bytes(self.file.data)

    @property
    def state(self):
        return self.writer.state if self.writer else self._state

    def lead(self):
        """Another writer writes from now on."""
        state = contents(self.engine.records).state
        self._writers += 1
        self.writer = Chunked(FakeLog(self.engine), state, identify(
            f'{self._name}{self._writers}'))
        self.writer.lead(NODE)
        settle(self.writer)
        del self.file.data[state.end:]
        return self

    def add(self, *sizes, durable=None):
        """Transactions with data of these sizes, into no batch yet; return
        where they begin."""
        begin = self.file.end
        for size in sizes:
            self.file.append(
                self._record(size), with_seal=True,
                durable=self.state.end if durable is None else durable)
        return begin

    def _record(self, size):
        """Of one object after the other."""
        return lambda position, at: hostilefiles.record(
            position, self.file.tid % self.objects,
            bytes([self.file.tid % 251]) * size, tid=self.file.tid)

    def begin_batch(self):
        """It is to have all that was added."""
        data = self.content
        self.writer.write(Batch(
            self.state.end, len(data),
            lambda position, length: data[position:position + length]))

    def write(self, *sizes):
        """A batch of such transactions."""
        self.add(*sizes)
        self.begin_batch()
        settle(self.writer, 10_000)
        return self

    def begin_pack(self):
        """To the end, of all that is not current."""
        return self.say(PackBegin(oid(self.file.tid), False, VERSION))

    def swap(self, **changed):
        """What the file becomes may be told otherwise."""
        new = packed(self.content, self.state.pack)
        self.say(PackSwap(
            self.state.pack.id, *becoming(new)._replace(**changed)))
        self.file.data[:] = new
        return self

    def end_pack(self):
        return self.say(PackEnd(self.state.pack.id))

    def say(self, body):
        self.writer.say(body)
        settle(self.writer)
        return self

    def write_some_of(self, *sizes, records=2):
        """Only the first records of a batch."""
        self.add(*sizes)
        self.begin_batch()
        for _ in range(records):
            self.writer.advance()
        assert self.writer.left
        return self


class Contents(typing.NamedTuple):
    """What a file has that follows some records."""

    state: object
    content: bytes


def contents(records):
    state, content = BEGINNING, bytearray(MAGIC)
    for raw in records:
        applied = step(state, raw)
        assert isinstance(applied, Apply), applied
        if isinstance(applied.record.body, Data):
            content[applied.record.position:] = applied.record.body.data
        elif isinstance(applied.record.body, Epoch):
            del content[applied.state.end:]
        elif isinstance(applied.record.body, PackSwap):
            content[:] = packed(bytes(content), state.pack)
            assert becoming(content) == (
                applied.record.body.size, applied.record.body.checksum)
        state = applied.state
    return Contents(state, bytes(content[:state.end]))


def restored(engine, number):
    """The same log, as it was when it had so many records."""
    other = Engine(engine.log)
    other.records = engine.records[:number]
    other.blobs = engine.blobs
    other.head = contents(other.records).state.place
    return other


def found_in(directory):
    """All that is in a directory, but the lock file, which stays empty of
    meaning: name -> content."""
    found = {}
    for name in os.listdir(directory):
        if not name.endswith('.lock'):
            with open(os.path.join(directory, name), 'rb') as file:
                found[name] = file.read()
    return found


def patient():
    return Patience(Outage('a test waits'), threading.Event())


def apply(follower, applied):
    """It waits for the pack of its node."""
    while True:
        try:
            return follower.apply(applied, PATIENCE)
        except Late:
            pass


def bootstrap(path, state=BEGINNING, content=MAGIC):
    """The files of a node that is at this state: if nothing else is said, an
    empty one, which begins a log."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with datafile.open_new(path) as file:
        file.write_at(content, 0)
        file.sync()
        states.save(path, state, lambda position, length: os.pread(
            file.fileno(), length, position), SELF)


def take_a_late_record(engine):
    """The wrong member has one in the place of what is written from now on."""
    late = Logged(engine, 'late')
    begin = late.add(5, durable=4)
    raw = following(late.state, Data(
        begin, late.file.end, (), late.content[begin:]))
    engine.own = [*engine.records, raw], place_of(raw)


class FollowTest(TestCase):

    def setUp(self):
        super().setUp()
        self.logged = Logged().lead()
        self.engine = self.logged.engine
        self.stopping = threading.Event()

    def begin(self, at=None):
        """The files of a node that has kept what there is, or an earlier
        Contents."""
        found = contents(self.engine.records) if at is None else at
        bootstrap(self.path(), *found)

    def here(self):
        """As far as the log is now."""
        return contents(self.engine.records)

    def rejoin(self, engine=None, *faults):
        log = FakeLog(engine or self.engine)
        log.faults.extend(faults)
        follower = self.rejoin_by(log)
        log.faults.clear()
        return follower

    def apply_all(self, follower):
        """All that the log has by now."""
        reader = Reader(FakeLog(self.engine), follower.state)
        for applied in reader.to_the_end(patient()):
            apply(follower, applied)

    def handed_over(self, follower):
        opened = follower.hand_over()
        self.addCleanup(opened.lock_file.close)
        self.addCleanup(opened.file.close)
        return opened

    def rejoin_by(self, log, packs=IN_PROCESS):
        follower = rejoin(self.path(), log, self.stopping, packs)
        self.addCleanup(follower.close)
        return follower

    def content(self):
        with open(self.path(), 'rb') as file:
            return file.read()

    def replace(self, content):
        with open(self.path(), 'wb') as file:
            file.write(content)

    def kept(self):
        return states.load(self.path())

    @contextlib.contextmanager
    def nothing_changes(self):
        before = found_in(self.directory)
        yield
        self.assertEqual(found_in(self.directory), before)
