"""Lines about slow commits and conflicts: what they say, what they cost.  Goes
with `server/commitlog.py`.
"""

import sys
from unittest import mock

from fsyncstorage.server import commitlog

from ..support import oid
from ..support import until
from .serving import ErrorReply
from .serving import Served
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


class Conflicts(CommitLogCase):

    level = 2

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

    def in_the_loop(self, function):
        done = []
        self.server.acceptor.event_loop.call_soon_threadsafe(
            lambda: done.append(function()))
        until(lambda: done, 'called')


class Hostile(CommitLogCase):

    level = 2

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
