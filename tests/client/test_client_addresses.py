"""How long the client waits before it tries an address again."""

import unittest
from unittest import mock

from ZODB.utils import z64

from fsyncstorage.client.addresses import FIRST
from fsyncstorage.client.addresses import LEAST
from fsyncstorage.client.addresses import Addresses
from fsyncstorage.client.answer import UntilSent

from ..support import until
from .connected import ConnectedTestCase
from .connected import commit

A, B = ('a', 8100), '/b.sock'
MOST = 2


class Waits(unittest.TestCase):

    def setUp(self):
        self.addresses = Addresses()

    def fail(self, times=1, most=MOST):
        """The wait behind the last of so many failures in a row."""
        for _ in range(times):
            self.addresses.failed(A, most)
        return self.addresses.wait(A)

    def test_it_grows_and_has_a_bound(self):
        longest = [FIRST * 2 ** times for times in range(5)] + 50 * [MOST]
        for expected in longest:
            wait = self.fail()
            self.assertLessEqual(expected / 2, wait)
            self.assertLessEqual(wait, expected)

    def test_a_connection_was_used_for_a_while(self):
        """To any address: where nobody listened, one may take over now."""
        self.fail(times=20)
        self.addresses.was_of_use()
        self.assertLessEqual(self.fail(), FIRST)

    def test_each_address_by_itself(self):
        self.fail(times=20)
        self.assertEqual(self.addresses.wait(B), 0)
        self.addresses.refused(B, 9)
        self.assertEqual(self.addresses.wait(A), 0)
        self.assertLessEqual(9, self.addresses.wait(B))

    def test_never_all_the_time(self):
        self.assertLessEqual(LEAST / 2, self.fail(most=0))


class Connections(ConnectedTestCase):

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(Addresses, 'failed', autospec=True)
        self.failed = patch.start()
        self.addCleanup(patch.stop)
        self.client, self.serial = self.connect(), z64

    def end_it(self, end):
        """Once it is used; return when there is another one."""
        self.serial = commit(self.client, {1: b'x'}, self.serial)
        link = self.client._server
        stream = link.stream
        end(stream)
        until(lambda: link.stream not in (None, stream), 'connected again')

    def test_a_thread_that_was_interrupted(self):
        """No server has failed, however short the connection was: others of
        this process wait for the next one."""
        def interrupt(stream):
            with self.assertRaises(KeyboardInterrupt), UntilSent(stream):
                raise KeyboardInterrupt

        for _ in range(3):
            self.end_it(interrupt)
        self.failed.assert_not_called()

    def test_a_server_that_ends_it(self):
        self.end_it(lambda stream: self.in_loop(
            self.sessions()[0].abort))
        self.failed.assert_called()
