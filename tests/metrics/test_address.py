"""An address of the metrics, as it is written and as it is shown."""

import unittest

from fsyncstorage.metrics import address


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
