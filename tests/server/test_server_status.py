"""What a server says of itself."""

import json
import platform
import socket
import subprocess
import sys
import time
import unittest
from unittest import mock

from fsyncstorage.server import committer as module
from fsyncstorage.server import quiet

from ..support import PATIENCE
from ..support import until
from . import zeowire
from .serving import Served
from .serving import record

# The keys of ZEO's own server.
STOCK = {
    'aborts', 'active_txns', 'commits', 'conflicts', 'conflicts_resolved',
    'connections', 'last-transaction', 'loads', 'lock_time', 'start',
    'stores', 'timeout-thread-is-alive', 'waiting',
}


def ruok(server):
    """Ask as a monitor does, which is no client."""
    inbox = zeowire.Inbox()
    messages = []
    with socket.create_connection(server.addr) as connection:
        connection.sendall(zeowire.frame(b'ruok'))
        while data := connection.recv(1 << 16):
            messages += inbox.add(data)
    greeting, status = messages
    assert greeting.startswith(zeowire.HANDSHAKE)
    return json.loads(status)


class Status(Served):

    def test_all_that_stock_says(self):
        server = self.serve(transaction_timeout=10)
        peer = self.connect(server)
        status = ruok(server)
        self.assertEqual(set(status), {'1'})
        self.assertLessEqual(STOCK, set(status['1']))
        self.assertLessEqual(STOCK, set(peer.call('server_status')))
        self.assertIs(status['1']['timeout-thread-is-alive'], True)

    def test_it_counts(self):
        server = self.serve()
        peer, other = self.connect(server), self.connect(server)
        tid = peer.commit({1: b'x', 2: b'y'})
        peer.load(1)
        peer.vote({3: b'x'})
        other.ask_vote({3: b'y'})
        other.ping()
        until(lambda: ruok(server)['1']['waiting'] == 1, 'waiting')
        status = ruok(server)['1']
        self.assertIsNotNone(status['lock_time'])
        self.assertEqual(
            {name: status[name] for name in (
                'commits', 'stores', 'loads', 'aborts', 'active_txns',
                'connections', 'last-transaction')},
            {'commits': 1, 'stores': 4, 'loads': 1, 'aborts': 0,
             'active_txns': 2, 'connections': 2,
             'last-transaction': tid.hex()})
        peer.abort()
        status = ruok(server)['1']
        self.assertEqual((status['aborts'], status['active_txns']), (1, 1))
        self.assertGreater(status['bytes-received'], 0)
        self.assertGreater(status['bytes-sent'], 0)

    def test_it_counts_conflicts(self):
        server = self.serve()
        peer = self.connect(server)
        peer.commit({1: b'x'})
        with self.assertRaises(Exception):
            peer.vote({1: b'y'})
        self.assertEqual(ruok(server)['1']['conflicts'], 1)


# Every commit takes longer than that.
AT_ONCE = '0.000001s'
SECONDS = r'\d+\.\d{3} s'

# What a process has after it has freed 64 MB of long answers, with short ones
# between them that stay, 6 MB in all.
FREED = """
import os, sys
sys.path[:] = %r
from fsyncstorage.server.runzeo import main
try:
    main(['-a:0', '-f', sys.argv[1], '--test'])
except SystemExit:
    pass

def memory():
    with open('/proc/self/statm') as statm:
        return int(statm.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')

bytearray(16 << 20)
before = memory()
pairs = [(bytearray(1 << 20), bytearray(100_000)) for _ in range(64)]
stay = [short for _, short in pairs]
del pairs
print(memory() - before)
"""


class Memory(Served):

    level = 2

    @unittest.skipUnless(platform.libc_ver()[0] == 'glibc', 'needs glibc')
    def test_what_was_freed_is_given_back(self):
        grown = subprocess.check_output(
            [sys.executable, '-c', FREED % sys.path, self.path()],
            stderr=subprocess.DEVNULL, text=True, timeout=PATIENCE)
        self.assertLess(int(grown.split()[-1]), 16 << 20)


class Slow(Served):
    """The line of the log about a slow commit."""

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
            rf' {SECONDS}: waited {SECONDS}, voted {SECONDS}, held until its'
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
