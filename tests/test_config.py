"""The section <fsyncstorage>: by ZODB.config, zodburi, zope.conf, zeo.conf."""

import importlib.resources
import io
import os
import xml.etree.ElementTree

import ZConfig
import ZODB
import ZODB.config
import zodburi
from ZEO.runzeo import ZEOOptions
from ZODB.blob import Blob
from ZODB.POSException import Unsupported

from .metrics.asking import probe
from .support import TestCase

SECTION = """
  <fsyncstorage>
    path {directory}/Data.fs
    {keys}
  </fsyncstorage>
"""

ZODB_CONF = '%import fsyncstorage\n<zodb main>' + SECTION + '</zodb>\n'


class Sections(TestCase):

    def from_keys(self, *keys):
        text = '%import fsyncstorage\n' + SECTION.format(
            directory=self.directory, keys='\n'.join(keys))
        storage = ZODB.config.storageFromString(text)
        self.addCleanup(storage.close)
        return storage

    def test_defaults(self):
        storage = self.from_keys()
        self.assertEqual(storage.durability.policy.name, 'group-commit')
        self.assertEqual(storage.durability.sync_interval, 1.0)
        self.assertIsNone(storage.durability.group_commit_delay)
        self.assertTrue(storage.pack_process)
        self.assertIsNone(storage.pack_rate)
        self.assertFalse(storage.local_reads)
        self.assertEqual(storage.local_reads_mode, 0o600)
        self.assertIsNone(storage.stats()['scrub'])
        self.assertEqual(storage.slow_commit_log, 0)

    def test_own_keys(self):
        storage = self.from_keys(
            'durability interval', 'sync-interval 200ms',
            'group-commit-delay 2ms', 'pack-process off', 'pack-rate 20MB',
            'local-reads on', 'local-reads-mode 0660', 'scrub-rate 2MB',
            'slow-commit-log 500ms')
        self.assertEqual(storage.durability.policy.name, 'interval')
        self.assertEqual(storage.durability.sync_interval, 0.2)
        self.assertEqual(storage.durability.group_commit_delay, 0.002)
        self.assertFalse(storage.pack_process)
        self.assertEqual(storage.pack_rate, 20 << 20)
        self.assertTrue(storage.local_reads)
        self.assertEqual(storage.local_reads_mode, 0o660)
        self.assertEqual(storage.stats()['scrub']['rate'], 2 << 20)
        self.assertEqual(storage.slow_commit_log, 0.5)

    def test_the_keys_of_filestorage(self):
        storage = self.from_keys(
            f'blob-dir {self.directory}/blobs', 'create true',
            'quota 1MB', 'pack-gc false', 'pack-keep-old false')
        self.assertEqual(storage.blob_dir, self.path('blobs'))
        self.assertEqual(storage._quota, 1 << 20)
        self.assertFalse(storage._pack_gc)
        self.assertFalse(storage.pack_keep_old)

    def test_metrics(self):
        self.assertIsNone(self.from_keys().metrics)

    def test_metrics_at_an_address(self):
        storage = self.from_keys('<metrics>', 'address 0', '</metrics>')
        address = storage.metrics.exporter.address
        self.assertEqual(
            probe(address, '/ready')[1]['storages'],
            {self.path(): 'ready'})
        storage.close()
        with self.assertRaises(OSError):
            probe(address, '/ready')

    def test_an_address_that_is_none(self):
        with self.assertRaisesRegex(
                ZConfig.DataConversionError, 'PORT, HOST:PORT'):
            self.from_keys('<metrics>', 'address /run/socket', '</metrics>')

    def test_read_only(self):
        self.from_keys().close()
        self.assertTrue(self.from_keys('read-only true').isReadOnly())

    def test_the_same_checks_as_the_constructor(self):
        for key, regex in [
            ('durability fsync', 'none, interval, group-commit'),
            ('sync-interval 0', 'between 1ms and 1h'),
            ('sync-interval 5', 'a number with a unit'),
            ('group-commit-delay 5s', 'between 0 and 1s'),
            ('local-reads-mode 0666', 'is 0600 or 0660, not 0666'),
            ('scrub-rate 1KB', 'at least 64KB'),
            ('slow-commit-log 2h', 'a time up to 1h'),

        ]:
            with self.subTest(key):
                with self.assertRaisesRegex(
                        ZConfig.DataConversionError, regex):
                    self.from_keys(key)
        self.assertEqual(os.listdir(self.directory), [])

    def test_a_packer_is_refused(self):
        with self.assertRaisesRegex(ValueError, 'a packer of your own'):
            self.from_keys('packer ZODB.FileStorage:FileStorage')
        self.assertEqual(os.listdir(self.directory), [])

    def test_a_key_that_is_none(self):
        """The nearest one is named."""
        for key, nearest in (('durabilty none', "'durability'"),
                             ('Sync_Interval 1s', "'sync-interval'"),
                             ('blobs /tmp', "'blob-dir'"),
                             ('packgc off', "'pack-gc'")):
            with self.subTest(key):
                with self.assertRaisesRegex(
                        ZConfig.DataConversionError,
                        f'not a known key.*{nearest}.*line 5'):
                    self.from_keys(key)
        with self.assertRaisesRegex(ZConfig.ConfigurationError, 'known key'):
            self.from_keys('zzz on')

    def test_no_key_is_missing(self):
        """Also of those of the sections that ours extend."""
        schema = ZODB.config.getStorageSchema()
        text = '%import fsyncstorage\n%import fsyncstorage.client\n<{}>\n'
        for name in 'fsyncstorage', 'fsyncclient':
            with self.assertRaises(ZConfig.ConfigurationError):
                ZConfig.loadConfigFile(schema, io.StringIO(text.format(name)))
            section = schema.gettype('ZODB.storage').getsubtype(name)
            for key, _ in section:
                if key is not None:
                    self.assertEqual(section.keytype(key), key)

    def test_a_blobstorage_around_it_is_refused(self):
        """As soon as it would keep a blob."""
        text = '%import fsyncstorage\n<blobstorage>\nblob-dir {}/b\n{}\n' \
            '</blobstorage>'.format(self.directory, SECTION.format(
                directory=self.directory, keys=''))
        db = ZODB.DB(ZODB.config.storageFromString(text))
        self.addCleanup(db.close)
        with self.assertRaisesRegex(Unsupported, 'Use the blob-dir'):
            with db.transaction() as connection:
                connection.root()['blob'] = Blob(b'content')
        with db.transaction() as connection:
            connection.root()['all else'] = True

    def write(self, text):
        with open(self.path('site.conf'), 'w') as file:
            file.write(text.format(directory=self.directory, keys=''))
        return self.path('site.conf')

    def test_a_database(self):
        db = ZODB.config.databaseFromURL(self.write(ZODB_CONF))
        self.assertEqual(type(db.storage).__name__, 'FsyncStorage')
        db.close()

    def test_zodburi(self):
        path = self.write(ZODB_CONF)
        for uri in f'zconfig://{path}#main', f'zconfig://{path}':
            factory, options = zodburi.resolve_uri(uri)
            storage = factory()
            self.assertEqual(type(storage).__name__, 'FsyncStorage')
            storage.close()

    def test_zeo_conf(self):
        """As stock runzeo and zeoctl read it."""
        path = self.write(
            '%import fsyncstorage\n<zeo>\n  address 0\n</zeo>'
            + SECTION.replace('{keys}', '<metrics>\naddress 0\n</metrics>'))
        options = ZEOOptions()
        options.realize(['-C', path])
        storage = options.storages[0].open()
        self.assertEqual(type(storage).__name__, 'FsyncStorage')
        # The name by which a server serves it.
        self.assertEqual(
            [shown.name for shown in storage.metrics.exporter.storages()],
            ['1'])
        storage.close()

    def test_the_import_brings_three_sections_only(self):
        """So it never gets in the way of what else a zope.conf imports."""
        path = importlib.resources.files('fsyncstorage') / 'component.xml'
        component = xml.etree.ElementTree.fromstring(path.read_text())
        self.assertEqual(
            [(each.tag, each.get('name') or each.get('package'))
             for each in component],
            [('import', 'ZODB'), ('sectiontype', 'metrics'),
             ('sectiontype', 'quorum'),
             ('sectiontype', 'fsyncstorage')])
