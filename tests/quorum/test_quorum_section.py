"""The section <quorum>: what it says, and what is refused, by which words."""

import io
import os
import pathlib

import ZConfig
import ZODB.config
from ZODB.FileStorage.FileStorage import FileStorageError

from fsyncstorage.quorum.leading.loglimit import Trims

from ..support import TestCase

ETCD = 'etcd http://one:2379 http://two:2379 http://three:2379'


class Sections(TestCase):

    def opener(self, *keys, outside=('durability quorum',)):
        inside = '\n'.join(keys)
        text = (f'<fsyncstorage>\npath {self.path()}\n'
                + '\n'.join(outside)
                + (f'\n<quorum>\n{inside}\n</quorum>' if keys else '')
                + '\n</fsyncstorage>')
        config, _ = ZConfig.loadConfigFile(
            ZODB.config.getStorageSchema(),
            io.StringIO('%import fsyncstorage\n' + text))
        return config.storage

    def section(self, *keys):
        return self.opener('log site', ETCD, *keys).config.quorum

    def test_what_it_says(self):
        found = self.section('node one')
        settings = found._settings(None)
        self.assertEqual(settings.prefix, '/fsyncstorage/site')
        self.assertEqual(settings.addresses, ETCD.split()[1:])
        setup = found.setup
        self.assertEqual((setup.node, setup.lease, setup.patience),
                         ('one', 5.0, 5.0))
        self.assertEqual(
            self.section('node one', 'disk-patience 9s').setup.patience, 9.0)
        log = setup.open_log()
        self.addCleanup(log.close)
        self.assertEqual(log.keys.head, b'/fsyncstorage/site/head')

    def test_the_limit_of_the_log(self):
        trims = self.section('node a').setup.trims
        self.assertEqual(trims, Trims(b'a'.ljust(16, b'\0'), 512 << 20))
        trims = self.section('node a', 'log-limit 16MB',
                             'at-log-limit drop').setup.trims
        self.assertEqual(trims, Trims(
            b'a'.ljust(16, b'\0'), 16 << 20, True))

    def test_what_is_refused(self):
        for keys, words in [
            (['node a b'], 'node must be a name of 1 to 16'),
            (['node *step-down'], 'node must be a name'),
            (['log a/b'], 'log must be a name of 1 to 64'),
            (['etcd one:2379'], "etcd: 'one:2379' is no address"),
            (['etcd http://one:1'], '1 addresses of etcd'),
            (['etcd http://one:1 http://two:1 http://one:1'], 'twice'),
            (['etcd http://one:1 http://two:1 https://three:1'],
             'either all'),
            ([f'key {__file__}'], '"cert"'),
            (['lease 100ms'], 'lease must be between 1s and 60s'),
            (['disk-patience 0s'], 'disk-patience must be between 1s and 1h'),
            (['lease soon'], 'lease must be a number'),
            (['log-limit 1MB'], 'log-limit must be at least 16MB'),
            (['at-log-limit go'], 'at-log-limit must be wait or drop'),
            (['user me'], '"user" and "password-file" belong together'),
            (['ca /nowhere'], 'nowhere'),
        ]:
            given = {key.split()[0]: key for key in ('log site', ETCD, *keys)}
            with self.subTest(keys), self.assertRaisesRegex(
                    (ZConfig.ConfigurationError, ValueError), words):
                self.opener(*given.values())

    def test_what_belongs_together(self):
        for keys, outside, words in [
            ([], ['durability quorum'], 'needs a section <quorum>'),
            (['log site', ETCD], [], 'goes with "durability quorum" only'),
            (['log site', ETCD], ['durability quorum', 'create true'],
             '"create true" does not go'),
            (['log site', ETCD], ['durability quorum', 'checksums off'],
             '"checksums off" does not go'),
        ]:
            with self.subTest(words), self.assertRaisesRegex(
                    ZConfig.DataConversionError, words):
                self.opener(*keys, outside=outside)
        self.assertEqual(os.listdir(self.directory), [])

    def test_a_password(self):
        path = pathlib.Path(self.path('password'))
        path.write_text('secret\nno more\n')
        found = self.section('user me', f'password-file {path}')
        self.assertEqual(found._password(), 'secret')
        for content, words in (b'', 'no password'), (b'\xff', 'be read'):
            path.write_bytes(content)
            with self.subTest(words), self.assertRaisesRegex(
                    FileStorageError, words):
                found.open_log()
        path.unlink()
        with self.assertRaisesRegex(FileStorageError, 'password-file'):
            found.open_log()

    def test_files_that_are_none(self):
        bad = pathlib.Path(self.path('ca'))
        bad.write_text('no certificate')
        found = self.opener(
            'log site', f'ca {bad}',
            'etcd https://one:1 https://two:1 https://three:1').config.quorum
        with self.assertRaisesRegex(FileStorageError, '"ca"'):
            found.open_log()
