"""An address of the metrics: how it is written, and who may call it by which
name."""

import unittest

from fsyncstorage.metrics import address
from fsyncstorage.metrics import hosts

OF_PROGRAMS = '/live', '/ready', '/startup', '/metrics'
OF_PEOPLE = '/', '/now', '/clients', '/page.js', '/none', ''
PATHS = *OF_PROGRAMS, *OF_PEOPLE


class Names(unittest.TestCase):

    def check(self, is_ours, answered, refused, paths=PATHS):
        for path in paths:
            for named in answered:
                self.assertTrue(is_ours(named, path), (named, path))
            for named in refused:
                self.assertFalse(is_ours(named, path), (named, path))

    def test_on_loopback_no_name_that_a_stranger_can_have(self):
        self.check(
            hosts.those_of('127.0.0.1', '127.0.0.1'),
            ['localhost', 'LocalHost:8190', '127.0.0.1', '127.0.0.1:8190',
             '[::1]', '[::1]:8190', '10.0.0.1:80'],
            ['', ':8190', 'evil.example', 'evil.example:8190',
             'localhost.evil.example', '127.0.0.1.evil.example:80',
             'a@localhost', 'localhost:80:80', 'localhost:evil.example',
             'localhost/evil.example', 'evil.example/localhost', '[evil]:1',
             'localhost ', '\xff', '[' * 100, 'localhost\t'])

    def test_the_name_that_the_operator_has_written(self):
        self.check(
            hosts.those_of('Zeo.Example', '127.0.1.1'),
            ['zeo.example:8190', 'ZEO.EXAMPLE'],
            ['evil.example', 'a.zeo.example', 'zeo.example.evil'])

    def test_another_address_has_the_names_of_its_network(self):
        """For programs, which would restart what they are refused by."""
        for host in '0.0.0.0', '::', '192.0.2.1':
            is_ours = hosts.those_of(host, host)
            self.check(is_ours, ['zeo.svc:8190', '', 'evil.example'], [],
                       OF_PROGRAMS)
            self.check(is_ours, ['localhost', '192.0.2.1:8190', '[::1]'],
                       ['zeo.svc:8190', '', 'evil.example'], OF_PEOPLE)

    def test_another_address_by_the_name_that_was_written(self):
        self.check(hosts.those_of('zeo.svc', '192.0.2.1'),
                   ['zeo.svc:8190', '192.0.2.1'], [])
        self.check(hosts.those_of('zeo.svc', '192.0.2.1'), [],
                   ['evil.example'], OF_PEOPLE)

    def test_what_headers_name(self):
        self.assertEqual(
            list(hosts.named_in([
                b'Host: a', b'hOsT:b ', b'X-Host: c', b'Hos: d', b'Host',
                b'', b':', b'\xff: \xff', b'host : \xff'])),
            ['a', 'b', '', '\xff'])


class Addresses(unittest.TestCase):

    def test_what_is_accepted(self):
        for text, expected in [
            ('9180', ('127.0.0.1', 9180)),
            (':9180', ('127.0.0.1', 9180)),
            ('0.0.0.0:9180', ('0.0.0.0', 9180)),
            (' zeo.example:0 ', ('zeo.example', 0)),
            ('[::1]:65535', ('::1', 65535)),
        ]:
            with self.subTest(text):
                self.assertEqual(address.checked(text), expected)

    def test_what_is_refused(self):
        for text in ('', 'localhost', 'localhost:', '::1', '::1:80', '65536',
                     '-1', 'host:http', '/run/metrics', '[::1]', '\u0663'):
            with self.subTest(text):
                with self.assertRaisesRegex(ValueError, 'PORT, HOST:PORT'):
                    address.checked(text)

    def test_as_a_url_has_it(self):
        self.assertEqual(address.shown(('::1', 80)), '[::1]:80')
        self.assertEqual(address.shown(('127.0.0.1', 80)), '127.0.0.1:80')
