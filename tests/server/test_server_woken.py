"""What waits until a peer reads again goes on, whatever else fails then."""

import unittest
from unittest import mock

from fsyncstorage.server.channel import Channel
from fsyncstorage.server.connection import Connection
from fsyncstorage.server.session import Session

LOG = 'fsyncstorage.server'


class Woken(unittest.TestCase):

    def test_the_blobs_of_a_channel(self):
        channel = Channel.__new__(Channel)
        channel.full = True
        channel._blobs, channel.account = mock.Mock(), mock.Mock()
        channel._blobs.wake.side_effect = (
            lambda: self.assertFalse(channel.full))
        channel._blobs.sending = False
        channel.account.resumed.side_effect = ValueError('of an account')
        channel.readers, channel.work = mock.Mock(), mock.Mock()
        with self.assertLogs(LOG, 'ERROR') as logs:
            channel.resume_writing()
        self.assertIn('of an account', logs.output[0])
        channel._blobs.wake.assert_called_once_with()
        channel.readers.wake.assert_called_once_with()
        channel.work.assert_called_once_with()

    def test_each_step_of_a_channel(self):
        channel = Channel.__new__(Channel)
        channel._blobs = mock.Mock()
        channel._blobs.wake.side_effect = ValueError('of a blob')
        with mock.patch.multiple(
                channel, look=mock.Mock(side_effect=ValueError('of a look')),
                work=mock.DEFAULT) as others, \
                self.assertLogs(LOG, 'ERROR') as logs:
            channel.resume_writing()
        self.assertEqual(len(logs.output), 2)
        others['work'].assert_called_once_with()

    def test_each_step_of_a_connection(self):
        connection = Connection.__new__(Connection)
        connection.account, connection.session = mock.Mock(), mock.Mock()
        for step in connection.account.resumed, connection.session.wake:
            step.side_effect = ValueError('of a step')
        call_the_waiting = mock.Mock(side_effect=ValueError('of all'))
        with mock.patch.multiple(
                connection, _call_the_waiting=call_the_waiting,
                go_on=mock.DEFAULT) as others, \
                self.assertLogs(LOG, 'ERROR') as logs:
            connection.resume_writing()
        self.assertEqual(len(logs.output), 3)
        others['go_on'].assert_called_once_with()

    def test_each_line_of_a_session(self):
        session = Session.__new__(Session)
        session.service = session
        session._readers, session._slow_calls = mock.Mock(), mock.Mock()
        session._readers.wake.side_effect = ValueError('of readers')
        with self.assertLogs(LOG, 'ERROR'):
            session.wake()
        session._slow_calls.wake.assert_called_once_with()

    def test_all_that_wait_for_a_connection(self):
        connection = Connection.__new__(Connection)
        connection.closed = True
        functions = [mock.Mock(side_effect=error)
                     for error in (ValueError('of one'), None)]
        connection._when_writable = functions.copy()
        with self.assertLogs(LOG, 'ERROR'):
            connection._call_the_waiting()
        for function in functions:
            function.assert_called_once_with()
