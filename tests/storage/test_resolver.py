"""The process that resolves conflicts: when it is started, what it may log."""

from unittest import mock

from BTrees.Length import Length
from ZODB.POSException import ConflictError
from ZODB.serialize import ObjectWriter

from fsyncstorage.processes import starting
from fsyncstorage.server import quiet
from fsyncstorage.storage import resolver

from ..server.serving import ErrorReply
from ..server.serving import Served
from ..server.serving import counter
from ..support import TestCase
from ..support import commit
from ..support import vote


class Closed(TestCase):

    def test_no_process_is_started_any_more(self):
        storage = self.open()
        storage.distrust_records()
        first = commit(storage, {1: counter(0)})
        commit(storage, {1: counter(1)}, {1: first})
        storage.about_to_close()
        with mock.patch.object(starting, 'ChildProcess') as process, \
                self.assertNoLogs(resolver.__name__), \
                self.assertRaises(ConflictError):
            vote(storage, {1: counter(2)}, {1: first})
        process.assert_not_called()


class Lines(Served):

    def test_clients_cannot_fill_the_log(self):
        peer = self.connect(self.serve())
        first = peer.commit({1: counter(0)})
        peer.commit({1: counter(1)}, first)
        text = ObjectWriter().serialize(Length('text'))  # it cannot be added
        now = quiet.time.monotonic()
        with mock.patch.object(
                quiet, 'time', mock.Mock(monotonic=lambda: now)), \
                self.assertLogs(resolver.__name__, 'WARNING') as logs:
            for _ in range(2 * quiet.BURST):
                with self.assertRaises(ErrorReply):
                    peer.vote({1: text}, first)
        self.assertEqual(len(logs.output), quiet.BURST)
