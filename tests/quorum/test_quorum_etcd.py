"""The log on real etcd: the same promises, and members that die, freeze, are
full, or want to know who comes."""

import base64
import contextlib
import itertools
import os
import shutil
import time
import unittest
from unittest import mock

from fsyncstorage.quorum.etcd import member
from fsyncstorage.quorum.etcd.checks import check
from fsyncstorage.quorum.etcd.checks import survey
from fsyncstorage.quorum.etcd.settings import Settings
from fsyncstorage.quorum.etcd.settings import address
from fsyncstorage.quorum.etcd.trouble import Refused
from fsyncstorage.quorum.history.record import Ends
from fsyncstorage.quorum.log.interface import Full
from fsyncstorage.quorum.log.interface import Moved
from fsyncstorage.quorum.log.interface import Unanswered

from ..support import PATIENCE
from ..support import until
from . import etcdcluster
from . import tlsfiles
from .gateway import OneCall
from .logcontract import START
from .logcontract import A
from .logcontract import B
from .logcontract import Contract
from .logcontract import WithoutALog
from .logcontract import place
from .samples import LOG

PREFIXES = itertools.count()
#: Between two tries, as a writer waits.
PAUSE = 0.01


def give_users(cluster):
    """One who may read and write below a prefix, and nothing else."""
    leader = cluster.leader
    leader.ask('/v3/auth/role/add', name='node')
    leader.ask('/v3/auth/role/grant', name='node', perm={
        'permType': 'READWRITE', 'key': text(PREFIX_OF_NODE + b'/'),
        'range_end': text(PREFIX_OF_NODE + b'0')})
    leader.ask('/v3/auth/role/add', name='root')
    for name in 'root', 'node':
        leader.ask('/v3/auth/user/add', name=name, password=f'of {name}')
        leader.ask('/v3/auth/user/grant', user=name, role=name)
    if leader.ask('/v3/auth/enable') is None:
        raise AssertionError('users cannot be switched on')


def text(raw):
    return base64.b64encode(raw).decode()


PREFIX_OF_NODE = b'of/the/node'

PLAIN = etcdcluster.Layer('plain')
SMALL = etcdcluster.Layer('small', '--quota-backend-bytes', str(16 << 20))
GUARDED = etcdcluster.Layer(
    'guarded', files=tlsfiles.make, prepare=give_users)


def patiently(call, *args):
    """Until it is answered."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return call(*args)
        except Unanswered:
            if time.monotonic() > deadline:
                raise
        time.sleep(PAUSE)


class EtcdCase(unittest.TestCase):
    """With a prefix for each test, in the cluster of its class."""

    layer = PLAIN

    def setUp(self):
        super().setUp()
        self.cluster = self.layer.cluster
        self.prefix = f'test{next(PREFIXES)}'

    def another(self, addresses=None, **options):
        log = OneCall(Settings(
            [address(each) for each in addresses or self.cluster.addresses],
            **{'prefix': self.prefix, **options}))
        self.addCleanup(log.close)
        return log


@etcdcluster.needed
class Promises(Contract, EtcdCase):
    pass


@etcdcluster.needed
class NoLog(WithoutALog, EtcdCase):
    pass


@etcdcluster.needed
class Checks(EtcdCase):

    def test_what_is_right(self):
        log = self.another()
        check(log)
        log.create(LOG)
        check(log)
        self.assertEqual(
            str(log.cluster.preferred), self.cluster.leader.address)

    def test_the_survey(self):
        found = survey(self.another())
        self.assertEqual(found.voting, 3)
        self.assertEqual(list(found.alarms), [])
        for status in found.members.values():
            self.assertGreater(status.size, 0)
        self.assertEqual(
            sum(each.leads for each in found.members.values()), 1)

    def test_no_users(self):
        with self.assertRaisesRegex(Refused, 'auth enable'):
            check(self.another(user='node', password='secret'), strict=True)


class FaultsCase(EtcdCase):

    def setUp(self):
        super().setUp()
        self.log = self.another()
        self.log.create(LOG)
        self.before = START

    def tearDown(self):
        for each in self.cluster.members:
            if each.process is None:
                each.start()
            else:
                each.thaw()
        self.cluster.wait_until_ready()
        super().tearDown()

    def write(self, count=10):
        """As a writer does: the same bytes, until their fate is known."""
        for _ in range(count):
            after = place(self.before.sequence + 1)
            raw = b'record %d' % after.sequence
            try:
                patiently(self.log.append, self.before, after, raw)
            except Moved:
                self.assertEqual(self.read(after.sequence), raw)
            self.before = after

    def read(self, sequence):
        return patiently(self.log.read, sequence)[0]

    def check_records(self):
        for number in range(1, self.before.sequence + 1):
            self.assertEqual(self.read(number), b'record %d' % number)
        for member in range(3):
            self.assertEqual(
                patiently(self.log.ends, member), Ends(LOG, 1, self.before))


@etcdcluster.needed
class Faults(FaultsCase):

    def test_one_is_killed_or_frozen(self):
        for fails, comes_back in ('kill', 'start'), ('freeze', 'thaw'):
            for who in 'a follower', 'the leader':
                with self.subTest(fails, who=who):
                    self.write()
                    member = (self.cluster.leader if who == 'the leader'
                              else self.cluster.followers[0])
                    getattr(member, fails)()
                    self.write()
                    getattr(member, comes_back)()
                    self.cluster.wait_until_ready()
                    self.check_records()

    def test_two_of_three_are_away_and_come_back(self):
        self.write()
        for member in self.cluster.followers:
            member.kill()
        after = place(self.before.sequence + 1)
        for _ in range(2):
            with self.assertRaises(Unanswered):
                self.log.append(self.before, after, b'record 11')
        with self.assertRaises(Unanswered):
            self.log.ends()
        with self.assertRaises(Unanswered):
            self.log.hold(A, 2)
        for member in self.cluster.members:
            if member.process is None:
                member.start()
        self.write()
        self.cluster.wait_until_ready()
        self.check_records()

    def test_a_lease_outlives_the_leader(self):
        other = self.another()
        term = self.log.hold(A, 60)
        self.cluster.leader.kill()
        self.assertEqual(patiently(other.hold, B, 60), 0)
        self.assertEqual(patiently(self.log.hold, A, 60), term)


@etcdcluster.needed
class NoRoom(FaultsCase):
    """A database that is full."""

    layer = SMALL

    def fill(self, id):
        with self.assertRaisesRegex(Full, 'etcdctl defrag'):
            for number in range(100):
                self.log.stage(id, number, os.urandom(1 << 20))

    def test_what_can_be_removed(self):
        """So nothing grows further; its operator makes room."""
        self.write()
        self.fill(A)
        self.log.unstage([A])
        self.log.trim(5)
        with self.assertRaises(Full) as raised:
            self.log.hold(A, 60)
        self.assertIn('etcdctl alarm disarm', str(raised.exception))
        self.assertEqual(self.log.all_staged(), set())
        self.assertEqual(self.log.ends(), Ends(LOG, 5, self.before))

    def test_a_trim_makes_room(self):
        """Much more than there is room for goes through it."""
        large = os.urandom(1 << 20)
        for sequence in range(1, 60):
            after = place(sequence)
            self.log.append(self.before, after, large)
            self.before = after
            if sequence % 5 == 0:
                self.log.trim(sequence)
        found = survey(self.log)
        self.assertEqual(list(found.alarms), [])
        for status in found.members.values():
            self.assertLess(status.size, 16 << 20)


class GuardedCase(EtcdCase):
    """TLS, and users."""

    layer = GUARDED

    def setUp(self):
        super().setUp()
        self.files = self.layer.files
        self.prefix = f'{PREFIX_OF_NODE.decode()}/{self.prefix}'

    def another(self, addresses=None, **options):
        return super().another(addresses, **{
            'user': 'node', 'password': 'of node', 'ca': self.files.ca,
            'cert': self.files.cert, 'key': self.files.key, **options})


@etcdcluster.needed
@tlsfiles.needed
class Users(GuardedCase):

    def test_a_user(self):
        log = self.another()
        check(log)
        log.create(LOG)
        log.append(START, place(1), b'1')
        log.append(place(1), place(2), b'2')
        self.assertEqual(log.read(1), [b'1', b'2'][:1])
        self.assertTrue(log.hold(A, 60))
        log.note(A, b'note')
        self.assertEqual(log.notes(), {A: b'note'})
        log.stage(A, 0, b'chunk')
        self.assertEqual(log.all_staged(), {A})
        log.unstage([A])
        # To compact is for the root of etcd alone.
        with self.assertLogs(level='WARNING') as said:
            log.trim(2)
            log.trim(2)
        self.assertEqual(len(said.output), 1)
        self.assertIn('--auto-compaction-retention', said.output[0])
        self.assertEqual(log.ends(), Ends(LOG, 2, place(2)))
        # Tokens are lost when a member starts again.
        for member in self.cluster.members:
            member.kill()
            member.start()
        with contextlib.suppress(Moved):
            patiently(log.append, place(2), place(3), b'3')
        self.assertEqual(patiently(log.ends).head, place(3))

    def test_who_is_refused(self):
        for words, options in (
                ('are wrong', {'password': 'wrong'}),
                ('are wrong', {'user': 'nobody'}),
                ('CommonName', {'user': None, 'password': None}),
                ('grant-permission', {'prefix': 'of/others'})):
            with self.subTest(options), self.assertRaises(Refused) as raised:
                check(self.another(**options), strict=True)
            self.assertIn(words, str(raised.exception))

    def test_a_certificate_that_names_the_user(self):
        log = self.another(
            user=None, password=None, cert=self.files.user_cert,
            key=self.files.user_key)
        check(log)
        log.create(LOG)
        log.note(A, b'note')
        self.assertEqual(log.notes(), {A: b'note'})


@etcdcluster.needed
@tlsfiles.needed
class Tls(GuardedCase):

    def test_certificates_that_are_refused(self):
        files = self.files
        for words, options in (
                ('its certificate is refused', {'ca': files.other_ca}),
                ('its certificate is refused', {'ca': None}),
                ('refuses our certificate', {'cert': None, 'key': None}),
                ('refuses our certificate', {
                    'cert': files.other_cert, 'key': files.other_key})):
            with self.subTest(options), self.assertRaises(Refused) as raised:
                check(self.another(**options), strict=True)
            self.assertIn(words, str(raised.exception))

    def test_certificates_that_are_replaced(self):
        """While the log is open: the files are read again."""
        files = self.files
        names = ca, cert, key = [
            os.path.join(files.directory, name) for name in 'abc']

        def replace(*others):
            for name, other in zip(names, others):
                shutil.copy(other, name)

        ours = files.ca, files.cert, files.key
        for wrong in (
                (files.other_ca, files.cert, files.key),
                (files.ca, files.other_cert, files.other_key)):
            replace(*wrong)
            log = self.another(ca=ca, cert=cert, key=key)
            with self.assertRaisesRegex(Unanswered, 'certificate'):
                log.holder()
            replace(*ours)
            patiently(log.holder)

    @mock.patch.object(member, 'LOOK_EVERY', 0.0)
    def test_certificates_that_change(self):
        """Before the old ones are over, and while nothing is refused; not in
        the moment in which only one of two files is new."""
        files = self.files
        names = cert, key = [
            os.path.join(files.directory, name) for name in 'de']
        for name, other in zip(names, (files.cert, files.key)):
            shutil.copy(other, name)
        log = self.another(cert=cert, key=key)
        log.holder()
        shutil.copy(files.other_cert, cert)
        log.holder()
        shutil.copy(files.other_key, key)
        until(lambda: self.is_refused(log), 'the new ones are used')

    def is_refused(self, log):
        try:
            log.holder()
        except Unanswered as error:
            return 'refuses our certificate' in str(error)
        return False

    def test_without_tls(self):
        plain = [f'http://127.0.0.1:{each.port}'
                 for each in self.cluster.members]
        with self.assertRaises(Unanswered) as raised:
            check(self.another(plain))
        for words in *plain, 'with TLS begins with https://':
            self.assertIn(words, str(raised.exception))
