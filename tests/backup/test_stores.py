"""What each store has to do, whatever it is; and errors of one line."""

import os
import re
import subprocess
import sys
import threading
import unittest

from fsyncstorage.backup.directory import NEW
from fsyncstorage.backup.directory import Directory
from fsyncstorage.backup.objectstore import opened
from fsyncstorage.backup.store import LARGEST
from fsyncstorage.backup.store import Exists
from fsyncstorage.backup.store import Missing
from fsyncstorage.backup.store import StoreError
from fsyncstorage.backup.store import TooLarge

from ..support import TestCase
from ..support import Thread
from . import stores
from .shipped import operations


class Contract:
    """`made` makes the store."""

    def setUp(self):
        super().setUp()
        self.store = self.made()

    def test_what_was_created_is_there(self):
        self.store.create('a/b/1', b'one')
        self.assertEqual(self.store.get('a/b/1'), b'one')

    def test_a_second_create_changes_nothing(self):
        self.store.create('a/1', b'one')
        with self.assertRaises(Exists):
            self.store.create('a/1', b'two')
        self.assertEqual(self.store.get('a/1'), b'one')

    def test_one_of_many_creates(self):
        """Of threads that create one object at a time, one does."""
        barrier = threading.Barrier(8)

        def create(number):
            barrier.wait()
            try:
                self.store.create('a/1', b'%d' % number)
            except Exists:
                return None
            return number

        threads = [Thread(create, number) for number in range(8)]
        winners = [number for thread in threads
                   if (number := thread.result()) is not None]
        self.assertEqual(self.store.get('a/1'), b'%d' % winners[0])
        self.assertEqual(len(winners), 1)

    def test_one_is_overwritten(self):
        for data in b'one', b'two':
            self.store.overwrite('a/1', data)
            self.assertEqual(self.store.get('a/1'), data)

    def test_the_front(self):
        self.store.create('a/1', b'one two')
        self.assertEqual(self.store.front('a/1', 3), b'one')
        self.assertEqual(self.store.front('a/1', 100), b'one two')

    def test_what_is_not_there(self):
        for read in self.store.get, lambda key: self.store.front(key, 3):
            with self.assertRaises(Missing):
                read('a/1')
        self.store.delete('a/1')
        self.assertEqual(self.keys('a'), [])

    def test_what_was_deleted_can_be_created(self):
        self.store.create('a/1', b'one')
        self.store.delete('a/1')
        with self.assertRaises(Missing):
            self.store.get('a/1')
        self.store.create('a/1', b'two')

    def keys(self, *arguments):
        return [entry.key for entry in self.store.list(*arguments)]

    def test_a_list_is_in_the_order_of_the_keys(self):
        keys = ['a/b-c/1', 'a/b/10', 'a/b/2', 'a/b/2-1', 'a/b/c/1', 'a/d']
        for key in [*reversed(keys), 'ab/1', 'b/1']:
            self.store.create(key, b'one')
        self.assertEqual(self.keys('a'), keys)
        self.assertEqual(self.keys('a/'), keys)
        self.assertEqual(self.keys('a/b'), keys[1:5])
        for number, key in enumerate(keys):
            self.assertEqual(self.keys('a', key), keys[number + 1:])

    def test_a_list_has_sizes_and_times(self):
        for _ in self.store.list('a'):
            self.fail()
        self.store.create('a/1', b'one')
        self.store.overwrite('b/now', b'')
        entry, = self.store.list('a')
        now, = self.store.list('b')
        self.assertEqual(entry.size, 3)
        self.assertAlmostEqual(entry.time, now.time, delta=60)

    def test_what_is_too_large_is_not_read(self):
        self.store.create('a/1', bytes(LARGEST))
        self.assertEqual(len(self.store.get('a/1')), LARGEST)
        self.store.create('a/2', bytes(LARGEST + 1))
        with self.assertRaises(TooLarge):
            self.store.get('a/2')


class OfTests(Contract, TestCase):
    """The one that other tests change keeps the contract, too."""

    made = staticmethod(stores.Simple)


class InDirectory(Contract, TestCase):

    def made(self):
        return stores.in_directory(self)

    def test_an_object_is_synced_before_it_has_its_key(self):
        log = operations(self)
        self.store.create('a/b/1', b'one')
        self.store.overwrite('a/b/1', b'two')
        root = os.path.basename(self.directory)
        self.assertEqual([re.sub('[0-9a-f]{16}', 'new', each)
                          for each in log], [
            f'names in {root}', 'names in a', 'sync new', 'link 1',
            'names in b', 'sync new', 'replace 1', 'names in b'])

    def test_what_others_made_is_synced_before_it_counts(self):
        self.store.create('a/b/1', b'one')
        other = Directory(self.directory)
        log = operations(self)
        with self.assertRaises(Exists):
            other.create('a/b/1', b'one')
        self.assertEqual(log[-1], 'names in b')
        self.assertIn('names in a', log)
        del log[:]
        self.assertEqual(len([*other.list('a')]), 1)
        self.assertEqual(log, ['names in a', 'names in b'])

    def test_a_full_disk(self):
        """One line; and nothing is there."""
        disk = self.controlled_disk()
        disk.fail_sync(OSError(28, 'No space left on device'))
        with self.assertRaisesRegex(StoreError, '^.*a/1: No space left'):
            self.store.create('a/1', b'one')
        self.assertEqual(self.keys('a'), [])
        self.assertEqual(os.listdir(self.path(NEW)), [])

    def test_what_a_killed_writer_left_is_removed(self):
        """What was begun lately may be another writer's."""
        self.store.create('a/1', b'one')
        for name in 'old', 'young':
            with open(self.path(f'{NEW}/{name}'), 'x'):
                pass
        os.utime(self.path(f'{NEW}/old'), (0, 0))
        self.made().create('a/2', b'two')
        self.assertEqual(os.listdir(self.path(NEW)), ['young'])

    def test_a_directory_is_not_made(self):
        with self.assertRaisesRegex(StoreError, 'no directory'):
            Directory(self.path('mounted'))

    def test_a_key_stays_inside(self):
        for key in '../a', 'a/../../b', '/a', 'a//b', '':
            with self.assertRaisesRegex(StoreError, 'no key'):
                self.store.create(key, b'one')

    def test_it_is_for_its_owner(self):
        self.store.create('a/1', b'one')
        self.assertEqual(os.stat(self.path('a/1')).st_mode & 0o777, 0o600)

    def test_what_is_no_file(self):
        os.makedirs(self.path('a/2'))
        os.mkfifo(self.path('a/1'))
        for key in 'a/1', 'a/2':
            with self.assertRaises(StoreError):
                self.store.get(key)


@unittest.skipUnless(stores.HAS_OBSTORE, 'obstore is missing')
class InMemory(Contract, TestCase):

    def made(self):
        return stores.in_memory(self)


@unittest.skipIf(stores.is_missing(stores.MOTO), 'a program is missing')
class OfMoto(Contract, TestCase):

    level = 3

    def made(self):
        return stores.in_s3(self, stores.MOTO)


@unittest.skipIf(stores.is_missing(stores.VERSITY), 'a program is missing')
class OfVersity(Contract, TestCase):

    level = 3

    def made(self):
        return stores.in_s3(self, stores.VERSITY)

    def test_keys_that_have_ended(self):
        """One line; it may be mended, and the next try works."""
        self.store.create('a/1', b'one')
        endpoint = self.store._store.config['endpoint']
        other = opened(
            's3://bucket/in/it', config={
                'endpoint': endpoint, 'region': 'us-east-1',
                'access_key_id': stores.KEY, 'secret_access_key': 'ended'},
            client_options={'allow_http': True})
        for call in (lambda: other.create('a/2', b'two'),
                     lambda: other.get('a/1'), lambda: [*other.list('a')]):
            with self.assertRaises(StoreError) as caught:
                call()
            self.assertNotIsInstance(caught.exception, (Exists, Missing))
            self.assertNotIn('\n', str(caught.exception))


@unittest.skipIf(stores.is_missing(stores.AZURITE), 'a program is missing')
class OfAzurite(Contract, TestCase):

    level = 3

    def made(self):
        return stores.in_azure(self)


@unittest.skipUnless(stores.HAS_OBSTORE, 'obstore is missing')
class Errors(TestCase):

    def test_nothing_listens(self):
        store = opened(
            's3://bucket/prefix', config={
                'endpoint': 'http://127.0.0.1:9', 'region': 'x',
                'access_key_id': 'x', 'secret_access_key': 'x'},
            client_options={'allow_http': True},
            retry_config={'max_retries': 0})
        for call in (lambda: store.create('a/1', b'one'),
                     lambda: store.get('a/1'), lambda: [*store.list('a')]):
            with self.assertRaisesRegex(
                    StoreError, r'^a.*\(Connection refused\)$') as caught:
                call()
            self.assertNotIn('\n', str(caught.exception))

    def test_what_is_no_url(self):
        with self.assertRaises(StoreError):
            opened('s3:')


class WithoutObstore(TestCase):

    def test_the_error_says_what_to_install(self):
        script = (
            'import sys; sys.modules["obstore"] = None\n'
            'from fsyncstorage.backup import objectstore, store\n'
            'try: objectstore.opened("s3://bucket")\n'
            'except store.StoreError as error: print(error)\n')
        said = subprocess.run(
            [sys.executable, '-c', script], check=True, text=True,
            stdout=subprocess.PIPE, env=os.environ | {
                'PYTHONPATH': os.pathsep.join(sys.path)}).stdout
        self.assertEqual(
            said, 's3://bucket needs obstore: install fsyncstorage[backup]\n')
