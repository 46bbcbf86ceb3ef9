"""Lines about slow commits and conflicts: what they say, what they cost."""

import sys
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.utils import z64

from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.server import commitlog
from fsyncstorage.storage.stillness import Stillness

from ..support import PATIENCE
from ..support import oid
from ..support import until
from .serving import ErrorReply
from .serving import Served
from .serving import counter
from .serving import record

LENGTH = 'BTrees.Length.Length'
MAPPING = 'persistent.mapping.PersistentMapping'
# Every commit takes longer than that.
AT_ONCE = '0.000001s'


class CommitLogCase(Served):

    def begin(self, **options):
        self.storage = self.open(**options)
        self.server = self.serve(self.storage)
        self.service = self.server.services['1']
        self.peer = self.labelled('one')

    def labelled(self, label):
        peer = self.connect(self.server)
        peer.post('set_client_label', label)
        peer.ping()
        return peer

    def lines(self, do):
        """Those that are written because of what is done."""
        with self.assertLogs('fsyncstorage.server.commitlog') as logged:
            do()
            self.server.close()  # they are written by then
        return [each.getMessage() for each in logged.records]

    def conflict(self, peer, serial, *numbers):
        with self.assertRaises(ErrorReply):
            peer.vote({number: record(9) for number in numbers}, serial)

    def read_too_late(self, serial):
        """Commit what depends on a state that was changed since."""
        self.peer.begin()
        self.peer.post('checkCurrentSerialInTransaction', oid(1), serial,
                       self.peer.id)
        with self.assertRaises(ErrorReply):
            self.peer.call('vote', self.peer.id)


class Slow(CommitLogCase):

    def test_what_took_how_long(self):
        self.begin(slow_commit_log=AT_ONCE)
        tids = []
        line, = self.lines(lambda: tids.append(
            self.peer.commit({1: record(1), 2: counter(0)})))
        seconds = r'\d+\.\d{3} s'
        self.assertRegex(
            line, rf'^one 127\.0\.0\.1:\d+: the commit {tids[0].hex()} took'
            rf' {seconds}: voted {seconds}, held until its client finished it'
            rf' {seconds}, (written {seconds}, synced|written and synced)'
            rf' {seconds}; of 2 objects: 0x01 \({MAPPING}\),'
            rf' 0x02 \({LENGTH}\)$')

    def test_the_phases_are_all_of_it(self):
        self.begin(slow_commit_log=AT_ONCE)
        found = []
        slow = self.service.commit_log.slow

        def note(ballot, tid, now):
            found.append((now - ballot.asked_at, list(ballot.phases(now))))
            slow(ballot, tid, now)

        with mock.patch.object(self.service.commit_log, 'slow', note):
            self.peer.commit({1: record(1)})
        (took, phases), = found
        self.assertAlmostEqual(took, sum(each for _, each in phases))
        self.assertTrue(all(each >= 0 for _, each in phases), phases)

    def test_behind_whom_it_waited(self):
        self.begin(slow_commit_log=AT_ONCE)
        other = self.labelled('other')

        def wait():
            self.peer.post('tpc_begin', 7, b'somebody\n', b'/a/page', {},
                           None, ' ')
            self.peer.store(1, record(1))
            self.peer.call('vote', 7)
            asked = other.ask_vote({1: record(2), 2: record(2)})
            until(lambda: self.service.committer.waiting, 'it waits')
            self.peer.abort()
            other.answer(asked)
            other.finish()

        line, = self.lines(wait)
        self.assertRegex(
            line, r'^other .*: waited for its objects \d+\.\d+ s, voted .*'
            r'; behind a transaction that was not committed by then of the'
            r" user 'somebody\\n' \('/a/page'\) of the client one 127")

    def test_of_the_other_no_more_is_kept_than_is_shown(self):
        self.begin(slow_commit_log=AT_ONCE)
        other, found = self.labelled('other'), []
        slow = self.service.commit_log.slow

        def note(ballot, tid, now):
            found.append(ballot.behind)
            slow(ballot, tid, now)

        def wait():
            self.peer.post('tpc_begin', 7, 'ä' * 1000, b'\xff' * 60000, {},
                           None, ' ')
            self.peer.store(1, record(1))
            self.peer.call('vote', 7)
            asked = other.ask_vote({1: record(2)})
            until(lambda: self.service.committer.waiting, 'it waits')
            self.peer.abort()
            other.answer(asked)
            with mock.patch.object(self.service.commit_log, 'slow', note):
                other.finish()

        self.lines(wait)
        (tid, (user, description), client), = found
        self.assertIsNone(tid)
        self.assertEqual(user, 'ä' * 100 + '...')
        self.assertEqual(description, '\ufffd' * 100 + '...')
        self.assertTrue(client.startswith('one 127'))

    def test_behind_one_that_was_committed(self):
        """Both change a counter: the conflict is resolved."""
        self.begin(slow_commit_log=AT_ONCE)
        other = self.labelled('other')
        first = self.peer.commit({1: counter(0)})
        tids = []

        def wait():
            self.peer.vote({1: counter(1)}, first)
            asked = other.ask_vote({1: counter(1)}, first)
            until(lambda: self.service.committer.waiting, 'it waits')
            tids.append(self.peer.finish())
            other.answer(asked)
            other.finish()

        line, = (each for each in self.lines(wait)
                 if each.startswith('other'))
        self.assertIn(
            f"; behind the transaction {tids[0].hex()} of the user '' ('')",
            line)

    def test_behind_what_is_no_transaction(self):
        """A step-down lets votes wait, and answers them in the end (I10)."""
        self.begin(slow_commit_log=AT_ONCE)
        stillness = Stillness(self.storage)

        def wait():
            self.assertTrue(stillness.begin(0))
            asked = self.peer.ask_vote({1: record(1)})
            until(lambda: self.service.committer.waiting, 'it waits')
            stillness.end()
            self.peer.answer(asked)
            self.peer.finish()

        line, = self.lines(wait)
        self.assertIn(': waited for its objects ', line)
        self.assertNotIn('behind', line)

    def test_a_client_that_resolves_conflicts(self):
        """The time that it takes is not that of the vote."""
        self.storage = self.open(slow_commit_log=AT_ONCE)
        self.server = self.serve(
            self.storage, client_conflict_resolution=True)
        self.service = self.server.services['1']
        self.peer = self.labelled('one')
        first = self.peer.commit({1: counter(0)})
        second = self.peer.commit({1: counter(1)}, first)

        def resolve():
            conflict, = self.peer.vote({1: counter(2)}, first)
            self.assertEqual(conflict['oid'], oid(1))
            self.peer.store(1, counter(3), second)
            self.peer.call('vote', self.peer.id)
            self.peer.finish()

        line = self.lines(resolve)[-1]
        self.assertRegex(
            line, r': waited for its client to resolve conflicts \d+\.\d{3} s,'
            r' voted ')

    def test_on_a_commit_channel_in_one_trip(self):
        self.begin(slow_commit_log=AT_ONCE)

        def commit():
            client = FsyncClient(
                self.server.addr, client_label='ours', wait=True,
                wait_timeout=PATIENCE, local_reads='off')
            transaction = TransactionMetaData()
            client.tpc_begin(transaction)
            client.store(oid(5), z64, counter(0), '', transaction)
            client.tpc_vote(transaction)
            client.tpc_finish(transaction)
            client.close()

        line, = self.lines(commit)
        self.assertRegex(
            line, rf'^ours 127.*; of 1 objects: 0x05 \({LENGTH}\)$')

    def test_few_of_many_objects(self):
        self.begin(slow_commit_log=AT_ONCE)
        line, = self.lines(lambda: self.peer.commit(
            {number: record(1) for number in range(1, 40)}))
        self.assertEqual(line.count(MAPPING), commitlog.MOST_NAMED)
        self.assertIn('of 39 objects: ', line)
        self.assertTrue(line.endswith(', ...'))

    def test_off(self):
        self.begin()
        with self.assertNoLogs('fsyncstorage.server.commitlog'):
            self.peer.commit({1: record(1)})
            self.server.close()

    def test_not_as_slow(self):
        self.begin(slow_commit_log='1h')
        with self.assertNoLogs('fsyncstorage.server.commitlog'):
            self.peer.commit({1: record(1)})
            self.server.close()


class Conflicts(CommitLogCase):

    def test_each(self):
        self.begin(conflict_log='each')
        first = self.peer.commit({1: record(1), 2: record(1)})
        self.peer.post('tpc_begin', 8, 'ä\nb', b'x' * 5000, {}, None, ' ')
        self.peer.post('storea', oid(2), first, record(2), 8)
        self.peer.call('vote', 8)
        second = self.peer.call('tpc_finish', 8)
        line, = self.lines(lambda: self.conflict(self.peer, first, 2))
        self.assertRegex(
            line, rf'^one 127\.0\.0\.1:\d+: a conflict: 0x02 \({MAPPING}\) was'
            rf' changed by the transaction {second.hex()} of the user'
            r" 'ä\\nb' \('x{100}\.\.\.'\)$")

    def test_what_was_only_read(self):
        self.begin(conflict_log='each')
        first = self.peer.commit({1: counter(1)})
        second = self.peer.commit({1: counter(2)}, first)

        line, = self.lines(lambda: self.read_too_late(first))
        self.assertIn(f'0x01 ({LENGTH}) was changed by the transaction'
                      f' {second.hex()}', line)

    def test_a_summary(self):
        self.begin()
        other = self.labelled('other')
        first = self.peer.commit({1: record(1), 2: record(1)})
        self.peer.commit({1: record(2), 2: record(2)}, first)
        self.conflict(self.peer, first, 1)
        self.conflict(self.peer, first, 1)
        self.conflict(other, first, 2)
        line, = self.lines(lambda: self.in_the_loop(
            self.service.commit_log._summarize))
        self.assertRegex(
            line, r'^1: 3 conflicts in 60 s, at 2 objects'
            rf' \(2 at 0x01 \({MAPPING}\), 1 at 0x02 \({MAPPING}\)\) of'
            r' 2 clients \(2 of one 127[^,]*, 1 of other 127[^,]*\)$')

    def test_when_there_is_a_summary(self):
        """The first conflict asks for one, the others are in it."""
        self.begin()
        first = self.peer.commit({1: record(1)})
        self.peer.commit({1: record(2)}, first)
        later = []
        with mock.patch.object(
                self.service.commit_log, '_loop',
                mock.Mock(call_later=lambda *args: later.append(args))):
            for _ in range(2):
                self.conflict(self.peer, first, 1)
        (seconds, summarize), = later
        self.assertEqual(seconds, commitlog.EVERY)
        line, = self.lines(lambda: self.in_the_loop(summarize))
        self.assertTrue(line.startswith('1: 2 conflicts in 60 s'), line)

    def in_the_loop(self, function):
        done = []
        self.server.acceptor.event_loop.call_soon_threadsafe(
            lambda: done.append(function()))
        until(lambda: done, 'called')

    def test_off(self):
        self.begin(conflict_log='off')
        first = self.peer.commit({1: record(1)})
        self.peer.commit({1: record(2)}, first)
        with self.assertNoLogs('fsyncstorage.server.commitlog'):
            self.conflict(self.peer, first, 1)
            self.assertEqual(self.service.commit_log._number, 0)
            self.server.close()
        self.assertEqual(self.service.stats.conflicts, 1)


class Hostile(CommitLogCase):

    def test_no_class_is_imported_and_no_line_is_broken(self):
        self.begin(conflict_log='each')
        name = 'no_such_module_of_ours'
        data = f'c{name}\ra\nB\x1b[2J{"C" * 900}\n.'.encode()
        first = self.peer.commit({1: record(1)})
        self.peer.commit({1: data}, first)

        with mock.patch.object(
                commitlog.classname, 'class_name',
                side_effect=commitlog.classname.class_name) as named:
            line, = self.lines(lambda: self.read_too_late(first))
        self.assertTrue(named.called)
        self.assertTrue(line.isprintable())
        self.assertIn(name, line)
        self.assertLess(len(line), 1000)
        self.assertNotIn(name, sys.modules)

    def test_a_label(self):
        self.begin(slow_commit_log=AT_ONCE)
        peer = self.labelled('me\n12:00 CRITICAL all is lost\x1b[2J')
        line, = self.lines(lambda: peer.commit({1: record(1)}))
        self.assertTrue(line.isprintable())
        self.assertIn('me\\n12:00 CRITICAL', line)

    def test_a_flood(self):
        """What no line is written for costs nothing, and is counted."""
        self.begin(conflict_log='each')
        first = self.peer.commit({1: record(1)})
        self.peer.commit({1: record(2)}, first)
        log = self.service.commit_log

        def flood():
            for _ in range(commitlog.AT_HAND):
                log._room.acquire()
            for _ in range(5):
                self.conflict(self.peer, first, 1)
            self.assertEqual(log._left_out, 5)
            for _ in range(commitlog.AT_HAND):
                log._room.release()
            self.conflict(self.peer, first, 1)

        lines = self.lines(flood)
        self.assertEqual(len(lines), 2)
        self.assertEqual(
            lines[1], '1: 5 lines about commits were left out')

    def check_what_is_read(self, times):
        """For lines about five conflicts."""
        self.begin(conflict_log='each')
        first = self.peer.commit({1: record(1)})
        self.peer.commit({1: record(2)}, first)
        with mock.patch.object(
                self.storage, 'history', side_effect=self.storage.history
                ) as history:
            for _ in range(5):
                self.conflict(self.peer, first, 1)
            self.server.close()
        self.assertEqual(history.call_count, times)

    def test_more_than_are_allowed(self):
        """Nothing is read for a line that is not written."""
        with mock.patch.object(commitlog, 'BURST', 2), \
                mock.patch.object(commitlog, 'INTERVAL', 3600), \
                self.assertLogs('fsyncstorage.server.commitlog') as logged:
            self.check_what_is_read(2)
        self.assertEqual(len(logged.output), 2)
        self.assertEqual(self.service.commit_log._left_out, 3)

    def test_a_level_that_leaves_them_out(self):
        with self.assertLogs('fsyncstorage.server.commitlog', 'WARNING'):
            self.check_what_is_read(0)
            commitlog.logger.warning('this alone')
        self.assertEqual(self.service.commit_log._left_out, 0)

    def test_slow_commits_have_an_allowance_of_their_own(self):
        with mock.patch.object(commitlog, 'BURST', 1):
            self.begin(slow_commit_log=AT_ONCE, conflict_log='each')
        log = self.service.commit_log
        self.assertTrue(log._conflict_lines.take())
        line, = self.lines(lambda: self.peer.commit({1: record(1)}))
        self.assertIn('the commit', line)

    def test_a_summary_of_many(self):
        self.begin()
        log = self.service.commit_log
        ballot = mock.Mock()
        with mock.patch.object(log._loop, 'call_later'):
            for number in range(commitlog.MOST_COUNTED + 7):
                ballot.client.session.name = f'client {number}'
                error = mock.Mock(oid=oid(number), class_name='a.B')
                log.conflict(ballot, error)
        self.assertEqual(len(log._objects), commitlog.MOST_COUNTED)
        self.assertEqual(len(log._clients), commitlog.MOST_COUNTED)
        self.assertEqual(len(log._classes), commitlog.MOST_COUNTED)
        line, = self.lines(log._summarize)
        self.assertTrue(line.startswith(
            '1: 1007 conflicts in 60 s, at 1000 or more objects ('), line)
        self.assertIn(') of 1000 or more clients (', line)
        self.assertLess(len(line), 1000)
        self.assertEqual(
            (len(log._objects), len(log._clients), log._number), (0, 0, 0))

    def test_a_line_that_cannot_be_written(self):
        self.begin(slow_commit_log=AT_ONCE)
        with mock.patch.object(
                self.service.commit_log, '_say_slow', side_effect=ValueError):
            line, = self.lines(lambda: self.peer.commit({1: record(1)}))
        self.assertEqual(
            line, '1: a line about a commit could not be written')

    def test_no_thread(self):
        self.begin(slow_commit_log=AT_ONCE)
        log = self.service.commit_log
        with mock.patch.object(
                log._thread, 'submit', side_effect=RuntimeError):
            self.peer.commit({1: record(1)})
        self.assertEqual(log._left_out, 1)
        lines = self.lines(lambda: self.peer.commit({2: record(1)}))
        self.assertEqual(
            lines[1], '1: 1 lines about commits were left out')
