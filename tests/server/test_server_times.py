"""The line of the log about a slow commit."""

import time
from unittest import mock

from fsyncstorage.server import committer as module
from fsyncstorage.server import quiet

from ..support import until
from .serving import Served
from .serving import record

# Every commit takes longer than that.
AT_ONCE = '0.000001s'
SECONDS = r'\d+\.\d{3} s'


class Slow(Served):

    def setUp(self):
        super().setUp()
        self.storage = self.open(slow_commit_log=AT_ONCE)
        self.server = self.serve(self.storage)
        self.peer = self.labelled('one')

    def labelled(self, label):
        peer = self.connect(self.server)
        peer.post('set_client_label', label)
        peer.ping()
        return peer

    def lines(self, do):
        """Those that are written because of what is done."""
        with self.assertLogs('fsyncstorage.server.service') as logged:
            do()
        return [each.getMessage() for each in logged.records]

    def test_what_took_how_long(self):
        tids = []
        line, = self.lines(lambda: tids.append(
            self.peer.commit({1: record(1), 2: record(1)})))
        self.assertRegex(
            line, rf'^one 127\.0\.0\.1:\d+: the commit {tids[0].hex()} took'
            rf' {SECONDS}: waited 0\.000 s, voted {SECONDS}, held until its'
            rf' client finished it {SECONDS}, written and synced {SECONDS}; of'
            r' 2 objects: 0x01, 0x02$')

    def test_how_long_it_waited(self):
        """For its objects, by the clock of the test."""
        other = self.labelled('other')
        committer = self.server.services['1'].committer
        now = [time.monotonic()]
        clock = mock.Mock(monotonic=lambda: now[0], time=time.time)

        def wait():
            self.peer.vote({1: record(1)})
            asked = other.ask_vote({1: record(2), 2: record(2)})
            until(lambda: committer.waiting, 'it waits')
            now[0] += 7
            self.peer.abort()
            other.answer(asked)
            other.finish()

        with mock.patch.object(module, 'time', clock):
            line, = self.lines(wait)
        self.assertRegex(line, r'^other .*: waited 7\.000 s, voted 0\.000 s')

    def test_a_label_and_a_flood(self):
        self.patch(quiet, INTERVAL=3600)  # however slow the machine is
        peer = self.labelled('me\n12:00 CRITICAL all is lost\x1b[2J')
        lines = self.lines(lambda: [
            peer.commit({number: record(1)})
            for number in range(quiet.BURST + 5)])
        self.assertEqual(len(lines), quiet.BURST)
        self.assertTrue(lines[0].isprintable())
        self.assertIn('me\\n12:00 CRITICAL', lines[0])
