"""The section <as-fsyncclient>, around what a recipe writes."""

import io
import unittest
from unittest import mock

import ZConfig
import ZODB.config

from fsyncstorage.client import sections
from fsyncstorage.client.storage import FsyncClient

from ..server.serving import Served
from .test_client_config import IGNORED
from .test_client_config import SAID
from .test_client_config import SCHEMA

SECTION = '''%import ZEO
%import fsyncstorage.client
<as-fsyncclient>
  {around}
  <{section}>
    {within}
  </{section}>
</as-fsyncclient>
'''

SERVER = 'server localhost:1'

# In the place of a section of ZEO's client.
OTHERS = {
    'mappingstorage': '',
    'demostorage': f'<zeoclient>\n{SERVER}\n</zeoclient>',
    'fsyncclient': SERVER,
}


def arguments(section, within=SERVER, around=''):
    """What the storage is made with."""
    with mock.patch.object(sections, 'Storage') as storage:
        ZODB.config.storageFromString(SECTION.format(
            section=section, within=within, around=around))
    addr, = storage.call_args.args
    return {'addr': addr, **storage.call_args.kwargs}


class Keys(unittest.TestCase):

    def setUp(self):
        self.schema = ZConfig.loadSchemaFile(io.StringIO(SCHEMA))

    def keys(self, section):
        return {info.name for _, info in self.schema.gettype(section)}

    def said(self, section):
        """What can be said in it: lines, and what they say."""
        return {
            lines: expected
            for lines, expected in {**SAID, **dict.fromkeys(IGNORED, {})}
            .items() if lines.split()[0] in self.keys(section)}

    def test_all_that_the_section_in_it_says_is_said(self):
        for section in 'zeoclient', 'clientstorage':
            plain = arguments(section)
            for lines, expected in self.said(section).items():
                with self.subTest(section, lines=lines):
                    if not lines.startswith('server '):
                        lines += '\n' + SERVER
                    self.assertEqual(
                        arguments(section, lines),
                        {**plain, **expected, 'addr': expected.get(
                            'addr', plain['addr'])})

    def test_what_it_says_itself(self):
        plain = arguments('zeoclient')
        for lines, expected in self.said('as-fsyncclient').items():
            with self.subTest(lines):
                self.assertEqual(
                    arguments('zeoclient', around=lines), plain | expected)

    def test_it_can_say_what_a_zeoclient_cannot(self):
        self.assertEqual(
            self.keys('as-fsyncclient') - {'*'},
            self.keys('fsyncclient') - self.keys('zeoclient') - {'*'})

    def test_it_comes_first(self):
        for value in True, False:
            with self.subTest(value):
                said = arguments(
                    'clientstorage', f'{SERVER}\nserver-sync {not value}',
                    f'server-sync {value}')
                self.assertEqual(said['server_sync'], value)

    def test_other_storages_are_refused(self):
        for section, within in OTHERS.items():
            with self.subTest(section):
                with self.assertRaisesRegex(
                        ZConfig.DataConversionError,
                        f'a <clientstorage>, not a <{section}>'):
                    arguments(section, within)


class ToAServer(Served):

    def test_it_connects(self):
        host, port = self.serve().addr
        storage = ZODB.config.storageFromString(SECTION.format(
            section='zeoclient', within=f'server {host}:{port}',
            around='wait-timeout 5'))
        self.addCleanup(storage.close)
        self.assertIsInstance(storage, FsyncClient)
        self.assertTrue(storage.is_connected())
