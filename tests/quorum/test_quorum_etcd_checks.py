"""What of etcd is refused at a start, and with which words.  Goes with
`quorum/etcd/checks.py`.
"""

import unittest
from unittest import mock

from fsyncstorage.quorum.etcd.checks import check
from fsyncstorage.quorum.etcd.keys import Keys
from fsyncstorage.quorum.etcd.settings import address
from fsyncstorage.quorum.etcd.trouble import Refused
from fsyncstorage.quorum.log.interface import Unanswered

from .gateway import MEMBER_LIST
from .gateway import STATUS
from .gateway import GatewaysCase
from .samples import LOG

CHECKS = 'fsyncstorage.quorum.etcd.checks'
KEYS = Keys('test')


def alters_status(**fields):
    def altered(path, answer):
        if path == STATUS:
            for name, value in fields.items():
                setattr(answer, name, value)

    return altered


class ChecksCase(GatewaysCase):

    def setUp(self):
        super().setUp()
        self.log = self.another()
        self.first, self.second, self.third = self.gateways.members

    def refused(self, *words, limit=0):
        """Where something begins."""
        with self.assertRaises(Refused) as raised:
            check(self.log, limit, strict=True)
        for each in words:
            self.assertIn(each, str(raised.exception))

    def is_said(self, *words, limit=0):
        """A start that comes by itself goes on."""
        self.refused(*words, limit=limit)
        with self.assertLogs(CHECKS, 'ERROR') as said:
            check(self.log, limit)
        self.assertEqual(len(said.output), 1)
        for each in words:
            self.assertIn(each, said.output[0])

    def all_fail(self, code, words):
        """Whatever is asked, but for its status."""
        def instead(call):
            if call.path != STATUS:
                call.fail(code, words)

        for gateway in self.gateways.members:
            gateway.instead = instead


class Members(ChecksCase):

    level = 2

    def test_what_is_right(self):
        with self.assertNoLogs(CHECKS):
            check(self.log)
            self.log.create(LOG)
            check(self.log)
        # Of the members, a majority is asked.
        self.assertTrue(all(
            request.linearizable for gateway in self.gateways.members
            for path, request in gateway.asked if path == MEMBER_LIST))

    def is_wrong(self, *words, **changed):
        """A member is sound otherwise."""
        with self.subTest(words), mock.patch.multiple(self.third, **changed):
            self.is_said(self.third.address, *words)

    def test_one_that_is_wrong(self):
        for version in '3.5.5', '3.4.30', '2.3.7', '3.5', 'unknown', '':
            self.is_wrong(version, 'Upgrade', version=version)
        # It is about to take the place of another one.
        self.is_wrong('learner', altered=alters_status(isLearner=True))
        # As when its certificate is over.
        self.is_wrong('no etcd', instead=lambda call: call.fail(
            12, 'unknown service etcdserverpb.Maintenance'))

    def test_too_few_that_vote(self):
        for gateway in self.gateways.members:
            gateway.voting = 1
        self.is_said('1 members', 'etcdctl member add')

    def test_one_member_under_two_names(self):
        self.third.number = 0
        self.is_said(
            self.first.address, self.third.address, 'the same member')

    def test_two_clusters(self):
        """One member was begun anew, as a cluster of its own."""
        self.first.cluster += 1
        self.first.voting = 1
        self.is_said(self.first.address, 'another cluster')

    def test_no_majority(self):
        """A start asks again and again: nothing is logged each time, and what
        it logs once has these words."""
        self.all_fail(14, 'etcdserver: no leader')
        with self.assertNoLogs(CHECKS):
            with self.assertRaisesRegex(Unanswered, 'no majority'):
                check(self.log)
            for gateway in self.first, self.second:
                gateway.close()
                self.gateways.members.remove(gateway)
            with self.assertRaisesRegex(
                    Unanswered, 'Is "etcd" in <quorum> right') as raised:
                check(self.log)
        for gateway in self.first, self.second:
            self.assertIn(gateway.address, str(raised.exception))

    def test_users_without_tls(self):
        self.all_fail(3, 'etcdserver: user name is empty')
        self.refused('"user" and "password"')

    def test_a_full_one(self):
        self.store.full = True
        with self.assertLogs(CHECKS, 'ERROR') as said:
            check(self.log)
        self.assertIn('NOSPACE', said.output[0])
        self.assertIn('etcdctl alarm disarm', said.output[0])

    def test_too_little_room_for_this_log(self):
        """Full is what etcd does not become by itself."""
        self.third.altered = alters_status(dbSizeQuota=1 << 30)
        self.is_said(
            self.third.address, f'--quota-backend-bytes to {3 << 29}',
            f'log-limit to {(1 << 30) // 3} ', limit=1 << 29)
        with self.assertNoLogs(CHECKS):
            check(self.log, limit=1 << 28, strict=True)
            check(self.log, strict=True)


class ThePrefix(ChecksCase):

    def test_other_keys(self):
        self.store.values[KEYS.all.start + b'of/others'] = b'value'
        self.refused('of/others', 'prefix')

    def test_another_identity(self):
        self.store.values[KEYS.log] = b'of others'
        self.refused('something else')


class TheSettings(unittest.TestCase):

    def test_addresses(self):
        for text in ('http://a.b-c:1', 'https://127.0.0.1:65535/',
                     'https://[::1]:2379'):
            self.assertEqual(address(text), text)
        for text in (
                'host:2379', 'http://host', 'http://host:0', 'http://host:x',
                'http://host:65536', 'http://a:1/v3', 'http://u:p@a:1', '',
                'http://a b:1', 'ftp://a:1', 'http://a:1\r\n'):
            with self.subTest(text), self.assertRaises(Refused):
                address(text)
