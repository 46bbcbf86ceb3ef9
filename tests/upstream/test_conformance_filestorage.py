"""The suites that ZODB runs over FileStorage, run over ours.

At level 2 is `group-commit`, with blobs; at level 3 is what repeats the same
tests under another policy, or with wrapped records.
"""

import doctest
import unittest
from unittest import mock

import ZODB.FileStorage.tests
import ZODB.tests.testblob
import ZODB.tests.testFileStorage as upstream
import ZODB.tests.util
import zope.testing.setupstack
from ZODB.tests import Corruption
from ZODB.tests import PackableStorage
from ZODB.tests.hexstorage import HexStorage

from fsyncstorage import FsyncStorage

from . import zodbsuites as ours

# Tests that cannot hold, with the reason.
CANNOT_FAIL_ANY_MORE = {
    # It takes away the flush of read buffers, and demands that stale data is
    # then read.  There are no read buffers here.
    'testFlushNeededAfterTruncate',
}
POKES_WHAT_IS_GONE = {
    # Replaces _finish_finish to break a commit in the middle.  Failing writes
    # and syncs are tested in test_failures.py.
    'deal_with_finish_failures',
    # Replace what stock's packer calls, and ours does not.  A full disk
    # during a pack is tested in test_packing.py, test_swap.py and
    # test_process.py.
    'pack_disk_full_copyToPacktime',
    'pack_disk_full_copyRest',
}
FAILS_EVERY_RENAME = {
    # Lets every rename fail, as if the caller's file were on another file
    # system.  That file is copied then, but here a blob gets its name, with
    # the tid in it, by a second rename, within the blob directory.
    # tests/commit/test_blobs.py lets only the first one fail.
    'commit_from_wrong_partition',
}


class NoRestore(FsyncStorage):

    @property
    def restore(self):
        raise Exception


def storage_tests(policy, *cases, **attributes):
    for case in cases:
        yield ours.without(
            ours.over(policy, case, **attributes), CANNOT_FAIL_ANY_MORE)


def no_restore_tests(policy):
    def make(file_name, **kw):
        return NoRestore(file_name, durability=policy, **kw)

    class Tests(upstream.FileStorageNoRestoreRecoveryTest):

        def setUp(self):
            patch = mock.patch.object(upstream, 'FileStorageNoRestore', make)
            patch.start()
            self.addCleanup(patch.stop)
            super().setUp()

    Tests.__name__ = Tests.__qualname__ = f'NoRestore {policy}'
    return ours.Loader().loadTestsFromTestCase(Tests)


def blob_tests(policy):
    make = ours.with_policy(policy)
    for name, wrap in ('Blob', lambda storage: storage), ('Hex', HexStorage):
        suite = ours.without_the_powers_of_root(
            ZODB.tests.testblob.storage_reusable_suite(
                f'{name} {policy} ',
                lambda name, blob_dir, wrap=wrap: wrap(
                    make(f'{name}.fs', blob_dir=blob_dir)),
                test_blob_storage_recovery=True,
                test_packing=True,
            ))
        yield ours.at_level(
            2 + (name == 'Hex'), ours.without(suite, FAILS_EVERY_RENAME))
    yield PackableStorage.IExternalGC_suite(
        lambda: make('data.fs', blob_dir='blobs', pack_gc=False))


def doctests(policy):
    def set_up(test):
        zope.testing.setupstack.setUpDirectory(test)
        patch = ours.substituted(policy)
        patch.start()
        zope.testing.setupstack.register(test, patch.stop)

    for module in upstream, ZODB.FileStorage.tests:
        yield doctest.DocTestSuite(
            module, setUp=set_up, tearDown=ZODB.tests.util.tearDown,
            checker=ZODB.tests.util.checker)


def all_tests(policy):
    yield from storage_tests(
        policy,
        upstream.FileStorageHexTests,
        upstream.FileStorageHexTestsWithBlobsEnabled,
        level=3)
    yield from storage_tests(policy, upstream.FileStorageTestsWithBlobsEnabled)
    yield ours.over(policy, upstream.FileStorageHexRecoveryTest, level=3)
    for case in (
        Corruption.FileStorageCorruptTests,
        upstream.FileStorageRecoveryTest,
        upstream.AnalyzeDotPyTest,
    ):
        yield ours.over(policy, case)
    yield no_restore_tests(policy)
    yield from blob_tests(policy)
    yield ours.without(
        unittest.TestSuite(doctests(policy)), POKES_WHAT_IS_GONE)


def test_suite():
    suite = unittest.TestSuite()
    for policy in ours.POLICIES:
        suite.addTests(storage_tests(
            policy, upstream.FileStorageTests, level=3))
    suite.addTests(all_tests('group-commit'))
    suite.addTest(ours.at_level(3, unittest.TestSuite(all_tests('none'))))
    return ours.after_check(suite)
