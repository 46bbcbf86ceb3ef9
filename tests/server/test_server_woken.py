"""What waits until a peer reads again goes on, whatever else fails then."""

import unittest
from unittest import mock

from fsyncstorage.server.channel import Channel
from fsyncstorage.server.connection import Connection


class Woken(unittest.TestCase):

    def test_the_blobs_of_a_channel(self):
        channel = Channel.__new__(Channel)
        channel.full = True
        channel._blobs, channel.account = mock.Mock(), mock.Mock()
        channel._blobs.wake.side_effect = (
            lambda: self.assertFalse(channel.full))
        channel._blobs.sending = False
        channel.account.resumed.side_effect = ValueError('of an account')
        with self.assertRaisesRegex(ValueError, 'account'):
            channel.resume_writing()
        channel._blobs.wake.assert_called_once_with()

    def test_all_that_wait_for_a_connection(self):
        connection = Connection.__new__(Connection)
        connection.closed = True
        functions = [mock.Mock(side_effect=error)
                     for error in (ValueError('of one'), None)]
        connection._when_writable = functions.copy()
        with self.assertLogs('fsyncstorage.server', 'ERROR'):
            connection._call_the_waiting()
        for function in functions:
            function.assert_called_once_with()
