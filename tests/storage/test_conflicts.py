"""To resolve a conflict, a server unpickles nothing that calls what it likes,
and lets nothing take what time and memory it likes.

What sites have in objects that resolve conflicts is resolved as before.
"""

import base64
import contextlib
import copyreg
import datetime
import decimal
import fractions
import os
import pickle
import signal
import sys
import time
import unittest
from datetime import tzinfo  # noqa: F401
from unittest import mock

from BTrees.Length import Length
from BTrees.OOBTree import OOBucket
from persistent.mapping import PersistentMapping
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage.FileStorage import FileStorage
from ZODB.POSException import ConflictError
from ZODB.serialize import ObjectWriter

from fsyncstorage.processes import starting
from fsyncstorage.server import committer
from fsyncstorage.server import quiet
from fsyncstorage.storage import checks
from fsyncstorage.storage import conflicts
from fsyncstorage.storage import resolution

from ..server.serving import ErrorReply
from ..server.serving import Served
from ..server.serving import counter
from ..server.serving import record as plain_record
from ..server.serving import state_of
from ..server.test_server_hostile import A_BIG_MEMO
from ..server.test_server_hostile import Calling
from ..support import PATIENCE
from ..support import TestCase
from ..support import commit
from ..support import oid
from ..support import until
from ..support import vote


class Value:
    """A site's class, not persistent, made by `__new__`."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return self.number == other.number


class Calls(Value):
    """A site's class that wants to be called."""

    def __reduce__(self):
        return Calls, (self.number,)


def record(state, kind=Length):
    """The record of an object of a class, with any state."""
    return front(kind) + pickle.dumps(state, 3)


def front(kind=Length):
    """The first pickle of a record, which names the class."""
    return pickle.dumps((kind, None), 3)


def bucket(**items):
    return ObjectWriter().serialize(OOBucket(items))


class Checked(unittest.TestCase):

    def accepted(self, record):
        resolution.check([record], contextlib.nullcontext())

    def refused(self, record, why=''):
        with self.assertRaisesRegex(resolution.Untrusted, why):
            resolution.check([record], contextlib.nullcontext())

    def test_what_sites_have(self):
        self.accepted(counter(5))
        self.accepted(bucket(a='b', c=(1, 2.5, b'x', None, True)))
        self.accepted(bucket(
            when=datetime.datetime(2026, 11, 22, tzinfo=datetime.timezone.utc),
            price=decimal.Decimal('1.50'), tags={'a'}))
        self.accepted(bucket(value=Value(5)))

    def test_calls(self):
        for function in os.system, eval, exec, open, getattr:
            self.refused(record(Calling(function, 'x')), function.__name__)
        self.refused(record(Calling(FileStorage, 'x')), 'FileStorage')
        self.refused(bucket(value=Calls(5)), 'Calls')

    def test_a_module_that_exits(self):
        """As one with a command line does, when it is imported."""
        finder = mock.Mock(spec=['find_spec'])
        finder.find_spec.side_effect = SystemExit
        with mock.patch.object(sys, 'meta_path', [finder, *sys.meta_path]):
            self.refused(front() + b'cexiting\nClass\n.', 'be imported')
            self.refused(record(5, ('exiting', 'Class')))

    def test_names(self):
        for name in (
            b'subprocess\nPopen', b'posix\nsystem', b'unittest\nmock',
            b'tests.support\noid',           # a function
            b'tests.storage.test_conflicts\ntzinfo'  # is imported there
        ):
            self.refused(front() + b'c' + name + b'\n.')
            self.refused(front() + b'(i' + name + b'\n.')

    def test_a_registered_class(self):
        copyreg.add_extension('os', 'system', 5)
        self.addCleanup(copyreg.remove_extension, 'os', 'system', 5)
        for extension in b'\x82\5', b'\x83\5\0', b'\x84\5\0\0\0':
            self.refused(front() + extension + b'.', 'copyreg')

    def test_each_way_to_call(self):
        """What is called need not be named by the same opcode."""
        named = f'c{Value.__module__}\nValue\n'.encode()
        self.accepted(front() + named + b')\x81.')
        self.refused(front() + named + b'N\x85R.', 'calls')
        self.refused(front() + b'(' + named + b'No.', 'calls')
        self.refused(front() + b'(' + b'Ni' + named[1:] + b'.', 'calls')

    def test_many_names(self):
        """Each may take a search for a module, or an import."""
        names = [b'0cmodule%d\nX\n' % number for number in range(100)]
        self.accepted(front() + b'N' + b''.join(names[1:]) + b'.')
        self.refused(front() + b'N' + b''.join(names) + b'.', '101 names')

    def test_a_class_that_resolves_nothing(self):
        self.refused(record({}, PersistentMapping), 'does not resolve')
        self.refused(record({}, FileStorage), 'does not resolve')

    def test_a_class_by_its_name(self):
        """As records had it once."""
        self.accepted(record(5, ('BTrees.Length', 'Length')))
        self.refused(record(5, ('os', 'system')))
        self.refused(record(5, ('os', 'system', 'x')))

    def test_rubbish(self):
        for rubbish in (b'', b'.', b'c', b'cos\n', b'rubbish', counter(5)[:9],
                        b'\x80\x04\x8c\x02os\x8c\x06system\x93.'):
            self.refused(rubbish)


class OverZEO(Served):

    def setUp(self):
        super().setUp()
        self.storage = self.open()
        self.peer = self.connect(self.serve(self.storage))
        self.canary = self.path('canary')
        self.first = self.peer.commit({1: counter(0)})
        self.second = self.peer.commit({1: counter(1)}, self.first)

    def test_a_conflict_is_resolved(self):
        self.peer.commit({1: counter(10)}, self.first)
        self.assertEqual(state_of(self.peer.load(1)[0]), 11)

    def test_nothing_is_called_of_what_was_stored_before(self):
        bomb = record(Calling(os.system, f'touch {self.canary}'))
        third = self.peer.commit({1: bomb}, self.second)
        with self.assertRaises(ErrorReply):
            self.peer.vote({1: counter(2)}, self.first)
        self.peer.commit({1: counter(3)}, third)
        with self.assertRaises(ErrorReply):
            self.peer.vote({1: counter(2)}, third)
        self.assertFalse(os.path.exists(self.canary), 'code was run')

    def test_nothing_is_called(self):
        """ZODB's error unpickles the beginning of a record, for its class."""
        for bomb in (record(Calling(os.system, f'touch {self.canary}')),
                     *bombs_at_the_beginning(self.canary)):
            with self.assertRaises(ErrorReply) as caught:
                self.peer.vote({1: bomb}, self.first)
            self.assertEqual(caught.exception.name, 'ConflictError')
            self.assertFalse(os.path.exists(self.canary), 'code was run')


class Forever(Length):

    def _p_resolveConflict(self, old, committed, new):
        while True:
            pass


class AtAFile(Length):

    def _p_resolveConflict(self, old, committed, new):
        """Return when there is the file of that name."""
        while not os.path.exists(new):
            time.sleep(0.001)
        return new


class Fails(Length):

    def _p_resolveConflict(self, old, committed, new):
        raise ValueError(new)


class BoundedCase(Served):

    def setUp(self):
        super().setUp()
        self.server = self.serve()
        self.storage = self.server.storages['1']
        self.peer, self.honest = map(self.connect, [self.server] * 2)

    def conflict(self, data, number=1, peer=None):
        """Have a peer store these data, where they conflict; return the
        question that it is about to ask."""
        first = self.honest.commit({number: counter(0)})
        self.honest.commit({number: counter(1)}, first)
        return lambda: (peer or self.peer).ask_vote({number: data}, first)

    def refused(self, ask, peer=None):
        with self.assertRaises(ErrorReply) as caught:
            (peer or self.peer).answer(ask())
        self.assertEqual(caught.exception.name, 'ConflictError')

    def resolved(self, number):
        self.peer.answer(self.conflict(counter(10), number)())
        self.peer.finish()
        self.assertEqual(state_of(self.peer.load(number)[0]), 11)

    def check_ended(self, data, why):
        """The conflict is refused, and the next one is resolved."""
        ask = self.conflict(data)
        with self.assertLogs(conflicts.__name__, 'WARNING') as logs:
            self.refused(ask)
        line, = logs.output
        self.assertRegex(line, why)
        self.assertEqual(self.processes(), [])
        self.resolved(2)

    def processes(self):
        process = self.storage._conflicts._process
        return [] if process is None else [process.pid]


class Bounded(BoundedCase):
    """Whatever is in a record."""

    level = 2

    def test_a_number_of_many_digits(self):
        digits = Calling(fractions.Fraction, '1e300000000')
        with mock.patch.object(conflicts, 'LONGEST', 0.2):
            self.check_ended(record(digits), 'it took more than')

    def test_a_long_list(self):
        zeros = Calling(bytes, 2 * 10**8)
        self.check_ended(record(Calling(list, zeros)), 'memory')

    def test_records_that_are_long(self):
        self.refused(self.conflict(record(b'x' * conflicts.MOST_OF_RECORDS)))
        self.assertEqual(self.processes(), [])

    def test_a_method_that_fails(self):
        """Its process is kept."""
        self.resolved(2)
        kept = self.processes()
        ask = self.conflict(record(5, Fails))
        with self.assertLogs(conflicts.__name__, 'WARNING') as logs:
            self.refused(ask)
        self.assertIn('ValueError(5)', *logs.output)
        self.resolved(3)
        self.assertEqual(self.processes(), kept)

    def test_others_go_on(self):
        """More conflicts than there are threads that vote."""
        file, number = self.path('file'), committer.VOTERS + 1
        with mock.patch.object(conflicts, 'LONGEST_WAIT', PATIENCE):
            peers = [self.connect(self.server) for _ in range(number)]
            asks = [self.conflict(record(file, AtAFile), 10 + each, peer)
                    for each, peer in enumerate(peers)]
            asked = [ask() for ask in asks]
            # What is large is voted by a thread.
            self.honest.commit({1: plain_record('x' * 10**6)})
            for peer in peers:
                peer.ping()
                self.assertEqual(peer.replies, {})
            with open(file, 'w'):
                pass
            for each, (peer, question) in enumerate(zip(peers, asked)):
                self.assertEqual(peer.answer(question), [oid(10 + each)])

    def test_the_time_of_one_transaction(self):
        first = self.honest.commit({2: counter(0), 3: counter(0)})
        self.honest.commit({2: counter(1), 3: counter(1)}, first)
        changes = {2: counter(5), 3: counter(5)}
        with mock.patch.object(checks, 'LONGEST_WAIT', 0):
            self.assertEqual(
                self.peer.vote({2: changes[2]}, first), [oid(2)])
            self.peer.abort()
            self.refused(lambda: self.peer.ask_vote(changes, first))
        self.assertEqual(
            self.peer.vote(changes, first), [oid(2), oid(3)])

    def test_a_process_that_was_killed(self):
        self.resolved(2)
        ask = self.conflict(counter(10))
        os.kill(*self.processes(), signal.SIGKILL)
        with self.assertLogs(conflicts.__name__, 'WARNING') as logs:
            self.refused(ask)
        self.assertIn('exit code -9', *logs.output)
        self.resolved(3)

    def test_what_the_process_has(self):
        """Nothing of the server: neither sockets, nor files with locks."""
        self.resolved(2)
        pid, = self.processes()
        names = {os.readlink(f'/proc/{pid}/fd/{each}')
                 for each in os.listdir(f'/proc/{pid}/fd')}
        self.assertEqual(
            [each for each in names if self.directory in each], [])
        sockets = [each for each in names if each.startswith('socket:')]
        self.assertEqual(len(sockets), 1)  # to the server's process

    def test_the_server_is_closed(self):
        """While the conflict is resolved."""
        with mock.patch.multiple(
                conflicts, LONGEST=10 * PATIENCE,
                LONGEST_WAIT=10 * PATIENCE), \
                self.assertNoLogs(conflicts.__name__):
            self.resolved(2)
            pid, = self.processes()
            self.conflict(record(5, Forever))()
            until(self.storage._conflicts._lock.locked, 'asked')
            self.server.close()
        with self.assertRaises(ProcessLookupError):
            os.kill(pid, 0)


class BoundedToo(BoundedCase):

    level = 3

    def test_a_state_that_is_nested_deeply(self):
        ask = self.conflict(front() + b'N' + b'\x85' * 10**6 + b'.')
        with self.assertLogs(conflicts.__name__, 'WARNING'):
            self.refused(ask)
        self.resolved(2)

    def test_imports_that_take_long(self):
        with open(self.path('takeslong.py'), 'w') as file:
            file.write('import time; time.sleep(600)')
        with mock.patch.object(conflicts, 'IMPORTING', 2), \
                mock.patch.object(sys, 'path', [self.directory, *sys.path]):
            self.check_ended(
                front() + b'ctakeslong\nX\n.', 'its imports took more than 2')

    def test_a_memo_number(self):
        self.check_ended(front() + A_BIG_MEMO, 'memory')

    def test_an_undo(self):
        first = self.honest.commit({1: record(1, Forever)})
        undone = self.honest.commit({1: record(2, Forever)}, first)
        self.honest.commit({1: record(3, Forever)}, undone)
        self.peer.begin()
        self.peer.post('undoa', base64.encodebytes(undone).rstrip(),
                       self.peer.id)
        question = self.peer.ask('vote', self.peer.id)
        with self.assertLogs(conflicts.__name__, 'WARNING'):
            with self.assertRaises(ErrorReply) as caught:
                self.peer.answer(question)
        self.assertEqual(caught.exception.name, 'MultipleUndoErrors')
        self.resolved(2)


class BeingAppended(TestCase):

    def test_it_is_in_the_index_and_not_appended_yet(self):
        """The other thread stores between two lines of `_advance`."""
        storage = self.open()
        first = commit(storage, {1: counter(0)})
        other = TransactionMetaData()
        storage.tpc_begin(other)
        append = storage._sequencer.append

        def store_and_append(appended):
            storage.store(oid(1), first, counter(10), '', other)
            append(appended)

        with mock.patch.object(
                storage._sequencer, 'append', store_and_append), \
                self.assertNoLogs('ZODB.ConflictResolution'):
            commit(storage, {1: counter(1)}, {1: first})
        storage.tpc_vote(other)
        storage.tpc_finish(other)
        self.assertEqual(state_of(storage.load(oid(1))[0]), 11)


class LeftToClients(Served):
    """A server whose clients resolve conflicts loads no class at all."""

    def check(self, storage):
        peer = self.connect(self.serve(
            storage, client_conflict_resolution=True))
        canary = self.path('canary')
        first = peer.commit({1: counter(0)})
        peer.commit({1: counter(1)}, first)
        for data in (counter(2), *bombs_at_the_beginning(canary)):
            conflict, = peer.vote({1: data}, first)
            self.assertEqual(conflict['oid'], oid(1))
            self.assertEqual(conflict['data'], data)
            self.assertFalse(os.path.exists(canary), 'code was run')
            peer.abort()

    def test_ours(self):
        self.check(self.open())

    def test_stock(self):
        storage = FileStorage(self.path('Stock.fs'))
        self.addCleanup(storage.close)
        self.check(storage)


def bombs_at_the_beginning(canary):
    """Records whose first pickle, that of the class, calls something."""
    text = f'S{f"touch {canary}"!r}\n'.encode()
    called = b'(' + text + b'ios\nsystem\n'
    yield called + b'.' + pickle.dumps({}, 3)
    yield b'N0cos\nsystem\n(' + text + b'tR.' + pickle.dumps({}, 3)
    # Nothing shows it but the last call.
    yield b'N0' + front()[2:-1] + b'0' + called + b'.' + pickle.dumps({}, 3)


class Closed(TestCase):

    def test_no_process_is_started_any_more(self):
        storage = self.open()
        storage.distrust_records()
        first = commit(storage, {1: counter(0)})
        commit(storage, {1: counter(1)}, {1: first})
        storage.about_to_close()
        with mock.patch.object(starting, 'ChildProcess') as process, \
                self.assertNoLogs(conflicts.__name__), \
                self.assertRaises(ConflictError):
            vote(storage, {1: counter(2)}, {1: first})
        process.assert_not_called()


class Lines(Served):

    level = 2

    def test_clients_cannot_fill_the_log(self):
        peer = self.connect(self.serve())
        first = peer.commit({1: counter(0)})
        peer.commit({1: counter(1)}, first)
        text = ObjectWriter().serialize(Length('text'))  # it cannot be added
        now = quiet.time.monotonic()
        with mock.patch.multiple(
                quiet, time=mock.Mock(monotonic=lambda: now), BURST=2), \
                self.assertLogs(conflicts.__name__, 'WARNING') as logs:
            for _ in range(4):
                with self.assertRaises(ErrorReply):
                    peer.vote({1: text}, first)
        self.assertEqual(len(logs.output), 2)
