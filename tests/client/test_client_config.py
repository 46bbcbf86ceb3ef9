"""The section <fsyncclient>, with every key of ZEO's two client sections, and
<as-fsyncclient>, around what a recipe writes.
"""

import asyncio
import io
import os
import ssl
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import ZConfig
import ZEO.asyncio.server
import ZEO.tests
import ZODB.config
from ZEO.Exceptions import ClientDisconnected
from ZODB.utils import maxtid

from fsyncstorage.client import sections
from fsyncstorage.client.opening import open_client
from fsyncstorage.client.stock import StockClient
from fsyncstorage.client.storage import WITHOUT_EFFECT
from fsyncstorage.client.storage import FsyncClient

from ..server.oneserver import server_context
from ..server.serving import Served
from ..support import TestCase
from ..support import begin
from ..support import oid

SECTION = '%import fsyncstorage.client\n<fsyncclient>\n{}\n</fsyncclient>\n'

AROUND = '''%import ZEO
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

SCHEMA = '<schema><import package="fsyncstorage.client"/></schema>'

# What is said in a section, and what it says to the storage.
SAID = {
    'server localhost:1234\nserver /var/zeo.sock': {
        'addr': [('localhost', 1234), '/var/zeo.sock']},
    'storage main': {'storage': 'main'},
    'name A name': {'name': 'A name'},
    'cache-size 3MB': {'cache_size': 3 << 20},
    'cache-path var/a.zec': {'cache': 'var/a.zec'},
    'client c1': {'client': 'c1'},
    'var cache': {'var': 'cache'},
    'wait false': {'wait': False},
    'wait-timeout 7': {'wait_timeout': 7},
    'read-only true': {'read_only': True},
    'read-only-fallback true': {'read_only_fallback': True},
    'server-sync true': {'server_sync': True},
    'client-label here': {'client_label': 'here'},
    'blob-dir blobs': {'blob_dir': 'blobs'},
    'shared-blob-dir true': {'shared_blob_dir': True},
    'blob-cache-size 1GB': {'blob_cache_size': 1 << 30},
    'blob-cache-size-check 20': {'blob_cache_size_check': 20},
    'blob-cache-fill Load': {'blob_cache_fill': 'load'},
    'blob-cache-mode 0440': {'blob_cache_mode': 0o440},
    'read-channels 9': {'read_channels': 9},
    'server-timeout 5s': {'server_timeout': 5},
    'server-timeout OFF': {'server_timeout': None},
    'server-timeout AUTO': {'server_timeout': 30},
    'server-kind Ours': {'server_kind': 'ours'},
    'local-reads OFF': {'local_reads': 'off'},
    'local-reads-socket /tmp/here': {'local_reads_socket': '/tmp/here'},
    'local-blob-dir /tmp/blobs': {'local_blob_dir': '/tmp/blobs'},
}
# ZEO ignores them, too.
IGNORED = (
    'min-disconnect-poll 1', 'max-disconnect-poll 2',
    'drop-cache-rather-verify true', 'username u', 'password p', 'realm r')

BAD = {
    'read-channels 0': 'read-channels is at least 1',
    'read-channels many': 'many',
    'server-timeout 0': 'server-timeout is off or at least 1s, not 0',
    'server-kind other': 'server-kind is auto or ours or stock',
    'server-timeout never': 'never',
    'local-reads on': 'local-reads is auto or off',
    'blob-cache-fill always': 'blob-cache-fill is commit or load',
    'blob-cache-mode 0644': 'blob-cache-mode is 0400, 0440 or 0444, not 0644',
    'blob-cache-mode rw': 'rw',
    'cache-size 3 apples': 'apples',
    'wait perhaps': 'perhaps',
}

_CERTIFICATES = os.path.dirname(ZEO.tests.__file__)


def arguments(config):
    """What the storage is made with."""
    with mock.patch.object(sections, 'open_client') as storage:
        ZODB.config.storageFromString(config)
    addr, = storage.call_args.args
    return {'addr': addr, **storage.call_args.kwargs}


def keys(section):
    schema = ZConfig.loadSchemaFile(io.StringIO(SCHEMA))
    return {info.name for _, info in schema.gettype(section)}


class Keys(unittest.TestCase):

    def arguments(self, *keys):
        return arguments(SECTION.format('\n'.join(keys)))

    def test_each_alone(self):
        plain = self.arguments('server localhost:1')
        for said, expected in SAID.items():
            with self.subTest(said):
                if not said.startswith('server '):
                    expected['addr'] = plain['addr']
                    said += '\nserver localhost:1'
                self.assertEqual(self.arguments(said), plain | expected)

    def test_several_servers(self):
        """In one key, or a key for each, as in stock's sections."""
        expected = [('a', 1), ('b', 2), ('c', 3), '/a b.sock']
        for said in (['server a:1 b:2  c:3', 'server /a b.sock'],
                     ['server a:1', 'server b:2 c:3', 'server /a b.sock']):
            self.assertEqual(self.arguments(*said)['addr'], expected)

    def test_several_servers_in_brackets(self):
        """ZConfig takes the outer ones away."""
        one, two, name = ('::1', 8100), ('::2', 8200), ('a', 1)
        for said, expected in {
            '[::1]:8100 [::2]:8200': [one, two],
            '[::1]:8100 a:1 [::2]:8200': [one, name, two],
            '[::1]:8100 a:1': [one, name],
            'a:1 [::2]:8200': [name, two],
        }.items():
            with self.subTest(said):
                self.assertEqual(
                    self.arguments(f'server {said}')['addr'], expected)

    def test_a_server_without_a_port(self):
        for said in 'server a', 'server a b:1':
            with self.subTest(said), self.assertRaisesRegex(
                    ValueError, 'server is HOST:PORT'):
                self.arguments(said)

    def test_nothing_of_zeo_is_missing(self):
        theirs = keys('clientstorage') | keys('zeoclient')
        self.assertEqual(
            keys('fsyncclient') - theirs,
            {'read-channels', 'blob-cache-fill', 'blob-cache-mode',
             'server-timeout', 'server-kind', 'local-reads',
             'local-reads-socket', 'local-blob-dir'})
        self.assertEqual(theirs - keys('fsyncclient'), set())
        said = {each.split()[0] for each in [*SAID, *IGNORED]}
        self.assertEqual(said, keys('fsyncclient') - {'*'})  # <ssl>

    def test_bad_values_and_their_lines(self):
        for said, message in BAD.items():
            with self.subTest(said):
                with self.assertRaisesRegex(
                        ZConfig.DataConversionError, message) as caught:
                    self.arguments('server localhost:1', said)
                self.assertEqual(caught.exception.lineno, 4)


class Around(unittest.TestCase):

    level = 2

    def arguments(self, section, within=SERVER, around=''):
        return arguments(AROUND.format(
            section=section, within=within, around=around))

    def said(self, section):
        """What can be said in it: lines, and what they say."""
        return {
            lines: expected
            for lines, expected in {**SAID, **dict.fromkeys(IGNORED, {})}
            .items() if lines.split()[0] in keys(section)}

    def test_all_that_the_section_in_it_says_is_said(self):
        for section in 'zeoclient', 'clientstorage':
            plain = self.arguments(section)
            for lines, expected in self.said(section).items():
                with self.subTest(section, lines=lines):
                    if not lines.startswith('server '):
                        lines += '\n' + SERVER
                    self.assertEqual(
                        self.arguments(section, lines),
                        {**plain, **expected, 'addr': expected.get(
                            'addr', plain['addr'])})

    def test_what_it_says_itself(self):
        plain = self.arguments('zeoclient')
        for lines, expected in self.said('as-fsyncclient').items():
            with self.subTest(lines):
                self.assertEqual(
                    self.arguments('zeoclient', around=lines),
                    plain | expected)

    def test_it_can_say_what_a_zeoclient_cannot(self):
        self.assertEqual(
            keys('as-fsyncclient') - {'*'},
            keys('fsyncclient') - keys('zeoclient') - {'*'})

    def test_it_comes_first(self):
        for value in True, False:
            with self.subTest(value):
                said = self.arguments(
                    'clientstorage', f'{SERVER}\nserver-sync {not value}',
                    f'server-sync {value}')
                self.assertEqual(said['server_sync'], value)

    def test_other_storages_are_refused(self):
        for section, within in OTHERS.items():
            with self.subTest(section):
                with self.assertRaisesRegex(
                        ZConfig.DataConversionError,
                        f'a <clientstorage>, not a <{section}>'):
                    self.arguments(section, within)


class InPython(unittest.TestCase):

    def test_bad_values(self):
        for bad in ({'read_channels': 0}, {'blob_cache_fill': 'always'},
                    {'server_timeout': 0}, {'server_timeout': 'never'},
                    {'blob_cache_mode': 0o600}, {'server_kind': 'other'}):
            with self.subTest(bad), self.assertRaises(ValueError):
                open_client(('localhost', 1), wait=False, **{
                    'server_kind': 'ours', **bad})

    def test_it_starts_without_the_client_of_stock(self):
        found = subprocess.run(
            [sys.executable, '-c', 'import sys, fsyncstorage.client.opening;'
             ' print([name for name in ("asyncio", "ZEO.ClientStorage")'
             ' if name in sys.modules])'], capture_output=True, text=True)
        self.assertEqual((found.stdout, found.stderr), ('[]\n', ''))

    def test_names_that_nobody_knows(self):
        with self.assertRaisesRegex(TypeError, 'server_timout'):
            FsyncClient(('localhost', 1), wait=False, server_timout=5)

    def check_said(self, expected, kind, **options):
        with self.assertLogs('fsyncstorage.client', 'INFO') as logged:
            open_client(('localhost', 1), server_kind=kind, wait=False,
                        **options).close()
        said = [each for each in logged.output if 'no effect' in each]
        self.assertEqual(len(said), 1)
        self.assertIn(f'{expected} has no effect', said[0])

    def test_what_has_no_meaning(self):
        """It is said once."""
        for name in WITHOUT_EFFECT:
            self.check_said(name.replace('_', '-'), 'ours', **{name: 7})
        with tempfile.TemporaryDirectory() as directory:
            self.check_said('blob-cache-size-check', 'ours',
                            blob_dir=directory, blob_cache_size_check=20)
        for name, value in (
                ('read_channels', 9), ('server_timeout', 5),
                ('local_reads', 'off'), ('local_reads_socket', '/here'),
                ('local_blob_dir', '/here')):
            self.check_said(
                name.replace('_', '-'), 'stock', **{name: value})


class ToAServer(Served):

    def test_around_a_section_of_zeos(self):
        host, port = self.serve().addr
        storage = ZODB.config.storageFromString(AROUND.format(
            section='zeoclient', within=f'server {host}:{port}',
            around='wait-timeout 5'))
        self.addCleanup(storage.close)
        self.assertIsInstance(storage, FsyncClient)
        self.assertTrue(storage.is_connected())

    def open_client(self, server, *keys):
        host, port = server.addr
        storage = ZODB.config.storageFromString(SECTION.format('\n'.join(
            [f'server {host}:{port}', 'wait-timeout 5', *keys])))
        self.addCleanup(storage.close)
        return storage

    def test_the_cache_of_a_zeoclient(self):
        """Ours is beside it, under the same name, whichever way that is said.
        """
        server = self.serve()
        self.open_client(
            server, 'client c1', f'var {self.directory}').close()
        path = self.path('c1-1.zec')
        self.assertFalse(os.path.exists(path))
        self.assertTrue(os.path.exists(path + '.fsync'))
        client = self.open_client(server, f'cache-path {path}')
        self.assertEqual(client._cache.path, path + '.fsync')

    def test_which_kind_of_server(self):
        """By its greeting, unless it is said."""
        ours, as_stock = self.serve(), self.serve(
            self.open('other.fs'), greets_as_stock=True)
        for server, keys, kind in (
                (ours, (), FsyncClient), (as_stock, (), StockClient),
                (as_stock, ('server-kind ours',), FsyncClient),
                (ours, ('server-kind stock',), StockClient)):
            with self.subTest(kind, keys=keys):
                client = self.open_client(server, *keys)
                self.assertIs(type(client), kind)
                self.assertTrue(client.is_connected())

    def test_nobody_is_there(self):
        """A client of stock, which works at any server, and a warning."""
        with self.assertLogs('fsyncstorage.client', 'WARNING') as logged:
            client = ZODB.config.storageFromString(SECTION.format(
                'server localhost:1\nwait off'))
        self.addCleanup(client.close)
        self.assertIs(type(client), StockClient)
        line, = logged.output
        self.assertIn('server-kind ours', line)

    def test_ssl(self):
        client = self.over_tls('client')
        self.assertTrue(client.is_connected())

    def test_an_encrypted_key(self):
        """The client's; a function has the password."""
        client = self.over_tls(
            'serverpw', 'password-function ZEO.tests.testssl.pwfunc')
        self.assertTrue(client.is_connected())

    def over_tls(self, name, *keys):
        """A client of this certificate, at a server that asks for it."""
        context = server_context()
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(_pem(name))
        return self.open_client(
            self.serve(ssl=context), '<ssl>', f'certificate {_pem(name)}',
            f'key {_pem(name + "_key")}', f'authenticate {_pem("server")}',
            'server-hostname zodb.org', *keys, '</ssl>')


class ToStock(TestCase):
    """A server of ZEO's, which knows nothing of us."""

    def setUp(self):
        super().setUp()
        # With uvloop, stock's server tells its clients things out of order.
        with mock.patch.object(ZEO.asyncio.server, 'new_event_loop',
                               asyncio.new_event_loop):
            self.address, stop = ZEO.server(
                self.path(), self.path('server-blobs'))
        self.addCleanup(stop)

    def open_client(self, kind, **options):
        client = open_client(self.address, server_kind=kind, **options)
        self.addCleanup(client.close)
        return client

    def test_a_client_of_stock(self):
        """With our cache of blobs; also if nothing is said."""
        for number, kind in enumerate(('auto', 'stock'), 1):
            with self.subTest(kind):
                client = self.open_client(kind, blob_dir=self.path(kind))
                self.assertIs(type(client), StockClient)
                transaction = begin(client)
                self.store_blob(client, transaction, number)
                client.tpc_vote(transaction)
                serial = client.tpc_finish(transaction)
                with open(client.loadBlob(oid(number), serial)) as file:
                    self.assertEqual(file.read(), 'content')

    def test_one_of_ours(self):
        """It does not connect, and says what to do."""
        with self.assertLogs('fsyncstorage.client', 'WARNING') as logged:
            client = self.open_client('ours', wait=False, wait_timeout=.5)
            with self.assertRaisesRegex(
                    ClientDisconnected, 'it is a stock server'):
                client.loadBefore(oid(1), maxtid)
        self.assertIn('server-kind', logged.output[0])


def _pem(name):
    return os.path.join(_CERTIFICATES, f'{name}.pem')
