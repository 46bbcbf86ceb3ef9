"""The suites that ZODB runs over FileStorage, run over a node that writes
under `quorum`, with the log in memory.
"""

import unittest

import ZODB.tests.testblob
import ZODB.tests.testFileStorage as upstream
from ZODB.tests import Corruption

from . import zodbsuites as ours
from .quorumsuites import Node
from .test_conformance_filestorage import CANNOT_FAIL_ANY_MORE
from .test_conformance_filestorage import FAILS_EVERY_RENAME

# A node refuses packs through a wrapper that reads references otherwise.
PACKS = {
    'testCorruptionInPack',
    'testPackAfterUndoDeletion',
    'testPackAfterUndoManyTimes',
    'testPackAllRevisions',
    'testPackAllRevisionsNoGC',
    'testPackEmptyStorage',
    'testPackJustOldRevisions',
    'testPackLotsWhileWriting',
    'testPackNowWhileWriting',
    'testPackOnlyOneObject',
    'testPackTomorrow',
    'testPackUndoLog',
    'testPackUnlinkedFromRoot',
    'testPackWhileWriting',
    'testPackWithMultiDatabaseReferences',
    'testPackYesterday',
    'testRedundantPack',
    'testTransactionalUndoAfterPack',
    'testTransactionalUndoAfterPackWithObjectUnlinkFromRoot',
}


def packs_later(test):
    """Packs of nodes have tests of their own."""
    return 3 if test._testMethodName in PACKS else 2


def blob_tests():
    return ours.at_level(3, ours.without(ours.without_the_powers_of_root(
        ZODB.tests.testblob.storage_reusable_suite(
            'Blob quorum ',
            lambda name, blob_dir: Node(f'{name}.fs', blob_dir=blob_dir),
            test_blob_storage_recovery=True, test_packing=True)),
        FAILS_EVERY_RENAME))


def test_suite():
    suite = unittest.TestSuite()
    suite.addTest(blob_tests())
    for case, excluded, attributes in (
        (upstream.FileStorageTests, CANNOT_FAIL_ANY_MORE, {'level': 3}),
        (upstream.FileStorageTestsWithBlobsEnabled, CANNOT_FAIL_ANY_MORE,
         {'level': packs_later}),
        (upstream.FileStorageHexTests, CANNOT_FAIL_ANY_MORE | PACKS,
         {'level': 3}),
        (upstream.FileStorageRecoveryTest, set(), {'level': 3}),
        (Corruption.FileStorageCorruptTests, set(), {}),
    ):
        suite.addTest(ours.without(
            ours.over('quorum', case, Node, **attributes), excluded))
    return ours.after_check(suite)
