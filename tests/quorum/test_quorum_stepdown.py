"""A planned change of the node that leads."""

from unittest import mock

from fsyncstorage.quorum import stepdown
from fsyncstorage.quorum.record import Place

from ..support import Thread
from ..support import begin
from ..support import commit
from ..support import oid
from ..support import until
from ..support import vote
from .fakelog import FakeLog
from .roles import RolesTest


class StepDown(RolesTest):

    def setUp(self):
        super().setUp()
        self.log = FakeLog(self.engine)

    def patch(self, **values):
        for name, value in values.items():
            patch = mock.patch.object(stepdown, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def requests(self):
        return self.a.storage._replica._requests

    def test_it_is_asked_for_from_anywhere(self):
        self.patch(LOOK_EVERY=0.01)
        self.both()
        tid = commit(self.a.storage, {1: b'x'})
        with self.assertLogs('fsyncstorage', 'WARNING'):
            self.assertTrue(stepdown.ask(self.log))
            storage = self.b.leads()
        self.assertEqual(storage.load(oid(1)), (b'x', tid))
        self.assertEqual(self.a.host.done, ['hang up', ('end', True)])
        self.assertNotIn(b'a ', self.a.host.holder_at_the_end or b'')
        self.assertIsNone(stepdown.answer(self.log))
        self.assertNotIn(stepdown.REQUEST, self.log.notes())

    def test_nobody_leads(self):
        self.assertFalse(stepdown.ask(self.log))

    def test_what_another_process_was_asked_is_not_done(self):
        """A request that is left over, for example."""
        self.patch(LOOK_EVERY=0.01)
        self.log.note(stepdown.REQUEST, b'a 0123')
        self.a.open()
        self.a.leads()
        looked = []
        with mock.patch.object(
                FakeLog, 'notes',
                lambda log: looked.append(1) or log._call('notes')):
            until(lambda: len(looked) > 2, 'it has looked')
        self.assertEqual(self.a.host.done, [])

    def test_no_other_node_follows(self):
        """It goes on to lead, and says why; a note of long ago does not do,
        nor one that is no place."""
        self.patch(LONGEST_WAIT=0.1, LOOK_EVERY=3600.0)
        self.a.open()
        commit(self.a.leads(), {1: b'x'})
        for raw in b'', b'?' * 24, Place(1, bytes(16)).packed():
            self.log.note(stepdown.named('b'), raw)
        self.log.note(stepdown.named('a'), self.engine.head.packed())
        self.log.note(b'*other', self.engine.head.packed())
        with self.assertLogs('fsyncstorage', 'WARNING'):
            self.assertIn('no other node', self.requests().step_down())
        self.assertIn('no other node', stepdown.answer(self.log))
        commit(self.a.storage, {2: b'x'})
        self.assertEqual(self.a.host.done, [])

    def test_what_is_voted_goes_on_and_votes_wait(self):
        self.patch(LOOK_EVERY=3600.0)
        self.both()
        storage = self.a.storage
        voted = vote(storage, {1: b'x'})
        with self.assertLogs('fsyncstorage', 'WARNING'):
            self.patch(LONGEST_STILLNESS=0.1)
            self.assertIn('not finished', self.requests().step_down())
        later = begin(storage)
        storage.store(oid(2), bytes(8), b'y', '', later)
        storage.tpc_vote(later)  # which goes on
        storage.tpc_abort(later)
        tid = storage.tpc_finish(voted)
        self.b.follows()
        with self.assertLogs('fsyncstorage', 'WARNING'):
            self.assertIsNone(self.requests().step_down())
        self.assertEqual(self.b.leads().load(oid(1)), (b'x', tid))

    def test_all_that_was_committed_is_before_the_next_epoch(self):
        """I16, with commits that go on meanwhile."""
        self.patch(LOOK_EVERY=3600.0)
        self.both()
        done = []

        def commits():
            number = 0
            while True:
                number += 1
                try:
                    done.append(commit(self.a.storage, {number: b'x'}))
                except Exception:
                    return

        threads = [Thread(commits) for _ in range(2)]
        with self.assertLogs('fsyncstorage', 'WARNING'):
            until(lambda: len(done) > 5, 'commits')
            self.assertIsNone(self.requests().step_down())
        for thread in threads:
            thread.result()
        storage = self.b.leads()
        tids = {each.tid for each in storage.iterator()}
        self.assertEqual(tids, set(done))

    def test_names(self):
        self.assertEqual(len(stepdown.named('a')), 16)
        self.assertTrue(stepdown.REQUEST.startswith(stepdown.RESERVED))
