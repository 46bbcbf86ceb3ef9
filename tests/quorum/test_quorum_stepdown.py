"""A planned change of the node that leads."""

from unittest import mock

from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.history.record import node_name
from fsyncstorage.quorum.log.notes import Note
from fsyncstorage.quorum.roles import stepdown

from ..support import PATIENCE
from ..support import Thread
from ..support import commit
from ..support import oid
from ..support import until
from ..support import vote
from .fakelog import FakeLog
from .roles import RolesTest
from .samples import SELF


class StepDown(RolesTest):

    def setUp(self):
        super().setUp()
        self.log = FakeLog(self.engine)

    def requests(self):
        return self.a.storage._replica._requests

    def test_it_is_asked_for_from_anywhere(self):
        self.patch(stepdown, LOOK_EVERY=0.01)
        self.both()
        tid = commit(self.a.storage, {1: b'x'})
        with self.assertLogs('fsyncstorage', 'WARNING'):
            self.assertTrue(stepdown.ask(self.log))
            until(lambda: self.a.host.done, 'it leaves')
        self.assertEqual(self.a.host.done, ['leave'])
        self.assertIsNone(stepdown.answer(self.log))
        self.assertNotIn(stepdown.REQUEST, self.log.notes())
        self.a.close()
        self.assertEqual(self.b.leads().load(oid(1)), (b'x', tid))

    def test_a_process_that_is_no_server(self):
        self.patch(stepdown, LOOK_EVERY=3600.0)
        self.a.host.may_leave = False
        self.both()
        with self.assertLogs('fsyncstorage', 'WARNING'):
            self.assertIn('no server', self.requests().step_down())

    def test_nobody_leads(self):
        self.assertFalse(stepdown.ask(self.log))

    def test_no_other_node_follows(self):
        """It goes on to lead, and says why; a note of long ago does not do,
        nor one that is no place."""
        self.patch(stepdown, LONGEST_WAIT=0.1, LOOK_EVERY=3600.0)
        self.a.open()
        commit(self.a.leads(), {1: b'x'})
        head = Note(SELF, self.engine.head).packed()
        for raw in b'', b'?' * 40, Note(SELF, Place(1, bytes(16))).packed():
            self.log.note(node_name('b'), raw)
        self.log.note(node_name('a'), head)
        self.log.note(b'*other', head)
        with self.assertLogs('fsyncstorage', 'WARNING'):
            self.assertIn('no other node', self.requests().step_down())
        self.assertIn('no other node', stepdown.answer(self.log))
        commit(self.a.storage, {2: b'x'})
        self.assertEqual(self.a.host.done, [])

    def test_what_is_voted_goes_on_and_votes_wait(self):
        """If there is no moment at which nothing is voted."""
        self.patch(stepdown, LOOK_EVERY=3600.0, LONGEST_STILLNESS=0.05)
        self.both()
        storage, host = self.a.storage, self.a.host
        host.has_moment = False
        voted = vote(storage, {1: b'x'})
        with self.assertLogs('fsyncstorage', 'WARNING'):
            self.assertIn('not finished', self.requests().step_down())
        self.assertEqual(host.done, ['leave'] * stepdown.TRIES)
        commit(storage, {2: b'y'})  # all goes on
        waited = []

        def leave(seconds):
            """Nothing is voted when votes wait."""
            waited.append(storage._turns._locks.ask(self, [oid(7)]))
            storage._turns.let_go(self)
            return len(waited) > 1

        with mock.patch.object(host, 'leave', leave), \
                self.assertLogs('fsyncstorage', 'WARNING'):
            finishing = Thread(storage.tpc_finish, voted)
            self.patch(stepdown, LONGEST_STILLNESS=PATIENCE)
            self.assertIsNone(self.requests().step_down())
            finishing.result()
        self.assertEqual(waited, [True, False])
