"""The suites that ZODB runs over FileStorage, run over a node that writes
under `quorum`, with the log in memory.

Those with blobs are left out: a node refuses blobs yet.
"""

import unittest

import ZODB.tests.testFileStorage as upstream
from ZODB.tests import Corruption

from . import zodbsuites as ours
from .quorumsuites import Node
from .test_conformance_filestorage import CANNOT_FAIL_ANY_MORE

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
def test_suite():
    suite = unittest.TestSuite()
    for case, excluded, attributes in (
        (upstream.FileStorageTests, CANNOT_FAIL_ANY_MORE, {}),
        (upstream.FileStorageHexTests, CANNOT_FAIL_ANY_MORE | PACKS,
         {'level': 2}),
        (upstream.FileStorageRecoveryTest, set(), {}),
        (Corruption.FileStorageCorruptTests, set(), {}),
    ):
        suite.addTest(ours.without(
            ours.over('quorum', case, Node, **attributes), excluded))
    return suite
