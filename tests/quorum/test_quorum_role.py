"""Who leads, who follows, and what ends the time of a primary; and a planned
change of the node that leads.

Real leases of a second, and no assertion about how long anything took.
"""

import errno
import os
from unittest import mock

from ZODB.POSException import StorageError
from ZODB.utils import u64

from fsyncstorage import FsyncStorage
from fsyncstorage.errors import DiskError
from fsyncstorage.errors import LeaderChanged
from fsyncstorage.quorum.beginning.copying import copied
from fsyncstorage.quorum.following import standby
from fsyncstorage.quorum.following.follower import Follower
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.history.record import node_name
from fsyncstorage.quorum.log import reading
from fsyncstorage.quorum.log.notes import Note
from fsyncstorage.quorum.log.notes import parse_note
from fsyncstorage.quorum.log.reading import Refused
from fsyncstorage.quorum.roles import holding
from fsyncstorage.quorum.roles import presence
from fsyncstorage.quorum.roles import primary
from fsyncstorage.quorum.roles import role
from fsyncstorage.quorum.roles import stepdown
from fsyncstorage.storage.objectmap import NoMap
from fsyncstorage.storage.opening import OIDS_OF_AN_EPOCH

from ..support import PATIENCE
from ..support import commit
from ..support import oid
from ..support import until
from .fakelog import FakeLog
from .roles import RolesTest
from .samples import SELF


class Names(RolesTest):
    """Two nodes of one name would have one note: the log would be trimmed
    past what one of them needs."""

    def setUp(self):
        super().setUp()
        for suffix in '', '.quorum':
            os.remove(self.b.path + suffix)
        self.log = FakeLog(self.engine)
        copied(self.a.path, self.b.path, self.log, node_name('b'))
        self.log.forget(node_name('b'))
        self.b.name = 'a'

    def test_a_name_is_that_of_one_node(self):
        self.a.open()
        self.a.leads()
        noted, = self.engine.kept.items()
        self.assertEqual(noted[0], node_name('a'))
        self.b.open()
        with self.assertRaisesRegex(Refused, 'another node of the name a'):
            self.b.leads()
        (name, raw), = self.engine.kept.items()
        self.assertEqual((name, parse_note(raw).identity),
                         (noted[0], parse_note(noted[1]).identity))
        self.b.close()
        self.a.close()
        self.a.open()  # it is its own
        self.a.leads()

    def test_it_is_noted_before_it_follows(self):
        """Whoever begins next knows of it."""
        seek = holding.Holding.seek
        with mock.patch.object(holding.Holding, 'seek', lambda self, fit: (
                seen.append(dict(engine.kept)), seek(self, fit))):
            seen, engine = [], self.engine
            self.a.open()
            self.a.leads()
        self.assertIn(node_name('a'), seen[0])


class Following(RolesTest):

    def test_each_epoch_has_oids_of_its_own(self):
        """What a node has given, and nobody has committed yet, the next one
        does not give; nor what the one before that had given."""
        self.a.open()
        commit(self.a.leads(), {1: b'x'})
        given = []
        for node in self.b, self.a, self.b:
            for each in self.a, self.b:
                each.close()
            node.open()
            storage = node.leads()
            given.append({u64(storage.new_oid()) for _ in range(1000)})
        for number, oids in enumerate(given, 2):
            self.assertGreater(min(oids), number * OIDS_OF_AN_EPOCH)
            self.assertLess(max(oids), (number + 1) * OIDS_OF_AN_EPOCH)

    def test_a_standby_that_ends(self):
        """The log has lost what it had."""
        self.both()
        commit(self.a.storage, {1: b'x'})
        until(lambda: self.b.node._standby.follower.kept.place
              == self.engine.head, 'it has kept it')
        with mock.patch.object(reading, 'LOOKED_EVERY', 0.0), \
                self.assertLogs('fsyncstorage', 'CRITICAL'):
            other = FakeLog(self.engine)
            self.engine.records.clear()
            self.engine.head = other.ends().head._replace(
                sequence=0, link=self.engine.log)
            with self.assertRaises(Refused):
                self.b.leads()

    def test_a_standby_in_trouble_does_not_try(self):
        self.both()
        self.patch(standby, LONGEST_PAUSE=0.02)
        with self.assertLogs('fsyncstorage', 'WARNING'):
            with mock.patch.object(Follower, 'check_its_name',
                                   side_effect=OSError('no room')):
                until(lambda: 'no room' in self.b.node.trouble, 'it says so')
                until(lambda: not self.b.node._holding.wanted, 'it does not')
            until(lambda: self.b.node._holding.wanted, 'it tries again')


class Damaged(RolesTest):
    """The scrub has found damage in the file of a node."""

    DAMAGE = 'its file has 1 damaged transactions'

    def test_one_that_follows_leaves_the_lease_to_a_sound_one(self):
        """If there is none, it is better than nobody."""
        self.both()
        self.patch(standby.Standby, damage=self.DAMAGE)
        self.patch(presence.Presence, another_could_lead=True)
        until(lambda: not self.b.node._holding.wanted, 'it does not try')
        until(lambda: self.noted('b').trouble == self.DAMAGE, 'it says so')
        self.assertFalse(self.noted('b').could_lead)
        self.patch(presence.Presence, another_could_lead=False)
        until(lambda: self.b.node._holding.wanted, 'it tries')

    def test_one_that_leads(self):
        """Commits do not wait for it, and all is not well."""
        self.a.open()
        storage = self.a.leads()
        self.patch(FsyncStorage, damage=self.DAMAGE)
        until(lambda: self.noted('a').trouble == self.DAMAGE, 'it says so')
        self.assertIsNone(storage.replica.trouble)

    def noted(self, name):
        return parse_note(self.engine.kept[node_name(name)]).health


class Silence(RolesTest):

    def test_over_and_renewed_in_the_same_term(self):
        """It answers nobody, and goes on: its commits were not lost."""
        self.a.open()
        storage = self.a.leads()
        built = storage.object_map()
        self.assertTrue(storage.replica.may_answer())
        with self.assertLogs('fsyncstorage', 'WARNING') as logged:
            self.a.is_away = True
            until(lambda: not storage.replica.may_answer(), 'it is silent')
            until(lambda: built.is_retired, 'its map is retired')
            with self.assertRaisesRegex(NoMap, 'another node'):
                storage.object_map()
            until(lambda: logged.records, 'it says so')
            self.assertIn('no client is answered', storage.replica.trouble)
            # Nor may those that ask nothing go on to read from their caches.
            until(lambda: self.a.host.done == ['hang up'], 'it has hung up')
            self.a.is_away = False
            until(storage.replica.may_answer, 'it answers')
            until(lambda: 'answered again' in logged.output[-1], 'said')
        self.assertEqual([
            'no client is answered until' in each for each in logged.output
            ].count(True), 1)
        self.assertIsNone(storage.replica.trouble)
        commit(storage, {1: b'x'})
        until(lambda: self.a.host.done == ['hang up', 'go on'], 'goes on')
        self.assertFalse(storage.object_map().is_retired)

    def test_a_log_that_is_full(self):
        """Nobody commits, so nobody but the lease meets it; when its operator
        has made room, the node goes on."""
        self.a.open()
        storage = self.a.leads()
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            self.engine.is_full = True
            until(lambda: logs.output, 'it says so')
            self.assertIn('no room', logs.output[0])
            self.engine.is_full = False
            until(lambda: any('answered again' in each
                              for each in logs.output), 'it goes on')
        self.assertTrue(storage.replica.may_answer())


class Retreat(RolesTest):

    def is_over(self, again=True):
        self.assertTrue(self.a.host.has_ended.wait(PATIENCE))
        self.assertEqual(self.a.host.done[-2:], ['hang up', ('end', again)])
        self.assertFalse(self.a.storage.replica.may_answer())

    def test_another_node_has_taken_over(self):
        """As when a process was frozen, or cut off: its commits fail."""
        self.both()
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            self.a.is_away = True
            storage = self.b.leads()
            commit(storage, {2: b'y'})
            self.a.is_away = False
            self.is_over()
        with self.assertRaisesRegex(LeaderChanged, 'does not lead any more'):
            commit(self.a.storage, {1: b'x'})
        self.assertIn('does not lead', self.a.storage.replica.trouble)

    def test_a_failing_disk(self):
        """The lease is given back; the process ends, and a person looks."""
        disk = self.controlled_disk()
        self.both()
        with self.assertLogs('fsyncstorage', 'CRITICAL'):
            disk.fail_sync(OSError('no'))
            with self.assertRaises(StorageError):
                commit(self.a.storage, {1: b'x'})
            self.is_over(again=False)
        # Nobody is answered any more when another node can have it.
        self.assertTrue(self.a.host.holder_then.startswith(b'a '))
        self.b.leads()

    def test_the_lease_is_given_back_at_a_close(self):
        """Behind all that is committed; nothing is said to the host."""
        self.a.open()
        commit(self.a.leads(), {1: b'x'})
        self.a.close()
        self.assertIsNone(self.engine.holder())
        self.assertEqual(self.a.host.done, [])

    def test_a_fenced_writer_answers_nobody(self):
        """At once: who would be told that the outcome is not known asks the
        next server."""
        with mock.patch.object(primary, 'LOOK_EVERY', 3600.0):
            self.a.open()
            storage = self.a.leads()
            self.assertTrue(storage.replica.may_answer())
            storage.replica._writer.fenced = 'by another'
            self.assertFalse(storage.replica.may_answer())

    def test_it_cannot_come_to_the_end_of_the_log(self):
        """As where the disk is full: another node may lead meanwhile, and it
        is tried again."""
        no_room = OSError(errno.ENOSPC, 'no room')
        real_lead, real_rejoin = role.lead, role.rejoin
        led, begun, holders = [], [], []

        def lead(*args):
            led.append(args)
            if len(led) == 1:
                raise no_room
            return real_lead(*args)

        def rejoin(*args):
            begun.append(args)
            if 1 < len(begun) < 4:
                until(lambda: self.engine.holder() is None, 'given back')
                holders.append(self.engine.holder())
                if len(begun) == 3:
                    self.assertIn('no room', self.a.node.trouble)
                raise no_room
            return real_rejoin(*args)

        with mock.patch.object(role, 'lead', lead), \
                mock.patch.object(role, 'rejoin', rejoin), \
                mock.patch.object(role, 'LONGEST_PAUSE', 0.01), \
                self.assertLogs('fsyncstorage', 'WARNING'):
            self.a.open()
            commit(self.a.leads(), {1: b'x'})
        self.assertEqual((len(led), len(begun), holders), (2, 4, [None] * 2))

    def test_a_disk_that_fails_at_the_handover(self):
        """The epoch has given up a batch, and that is cut off.  Nothing stays
        open: the same process (a Zope) may try again."""
        disk, real = self.controlled_disk(), role.lead

        def lead(*args):
            led = real(*args)
            with open(self.a.path, 'ab') as file:
                file.write(b'of a batch that is not whole')
            disk.fail_sync(OSError('no'))
            return led

        with mock.patch.object(role, 'lead', lead):
            self.a.open()
            with self.assertRaisesRegex(DiskError, 'a sync failed'):
                self.a.leads()
        self.assertTrue(all(log.is_stopped for log in self.a.logs))
        self.a.open()
        commit(self.a.leads(), {1: b'x'})


class StepDown(RolesTest):

    def setUp(self):
        super().setUp()
        self.log = FakeLog(self.engine)
        self.patch(primary, ASK_EVERY=0.01)

    def refusal(self):
        """Why it goes on to lead."""
        with self.assertLogs('fsyncstorage', 'WARNING'):
            self.assertTrue(stepdown.ask(self.log))
            until(lambda: stepdown.answer(self.log), 'an answer')
        self.assertEqual(self.a.host.done, [])
        return stepdown.answer(self.log)

    def test_it_is_asked_for_from_anywhere(self):
        self.both()
        tid = commit(self.a.storage, {1: b'x'})
        with self.assertLogs('fsyncstorage', 'WARNING'):
            self.assertTrue(stepdown.ask(self.log))
            until(lambda: self.a.host.done, 'it leaves')
        self.assertEqual(self.a.host.done, [('end', True)])
        self.assertIsNone(stepdown.answer(self.log))
        self.assertNotIn(stepdown.REQUEST, self.log.notes())
        self.a.close()
        self.assertEqual(self.b.leads().load(oid(1)), (b'x', tid))

    def test_a_process_that_is_no_server(self):
        self.a.host.may_leave = False
        self.both()
        self.assertIn('no server', self.refusal())
        commit(self.a.storage, {1: b'x'})

    def test_nobody_leads(self):
        self.assertFalse(stepdown.ask(self.log))

    def test_no_other_node_follows(self):
        """A note of long ago does not do, whatever it says, nor one that is
        no place."""
        self.patch(stepdown, LONGEST_WAIT=0.1)
        self.a.open()
        commit(self.a.leads(), {1: b'x'})
        for raw in b'', Note(SELF, Place(99, bytes(16))).packed():
            self.log.note(node_name('b'), raw)
            self.assertIn('no other node', self.refusal())
