"""The suites of ZEO, its stock client over our server.

The default run has what differs in the server; at level 2 is what goes the
same ways through it with another storage.
"""

import doctest
import functools
import os
import unittest
from unittest import mock

import ZEO.runzeo
import ZEO.tests.forker
import ZEO.tests.testConnection
import ZEO.tests.testZEO
import ZEO.tests.testZEOOptions
import zope.testing.setupstack
import ZODB.tests.util
from ZODB.tests.StorageTestBase import StorageTestBase

from fsyncstorage.server.runzeo import Options
from fsyncstorage.server.runzeo import Runner

from . import upstream

FSYNCSTORAGE = """
%import fsyncstorage
<fsyncstorage 1>
  path Data.fs
  durability {policy}
  {more}
</fsyncstorage>
"""

# Tests that cannot hold, with the reason.
NOT_OUR_SERVER = {
    # They call methods of ZEO's StorageServer, without a connection.
    'multiple_storages_invalidation_queue_is_not_insane',
    'getInvalidationsAfterServerRestart',
}
MORE_IS_SAID = {
    # They compare all of the status, or of the log, and ours say more.
    # test_server_status.py tests what must be in it.
    'test_server_status',
    'test_ruok',
    'runzeo_without_configfile',
}
ASKS_SINCE_A_TID_THAT_NEVER_WAS = {
    # It puts such a tid into a cache.  Ours does not guess what came after, so
    # the cache is dropped, and the state that the test demands is not shown.
    'invalidate_client_cache_entry_on_server_commit_error',
}
ONLY_PROTOCOL_5 = {
    # Has the server speak Z4, by a global of ZEO's.
    'protocols_test',
}

# They run for a fixed time; the default run has one more of the kind.
TEN_SECONDS_EACH = {
    'checkConcurrentLargeUpdates',
    'checkConcurrentUpdates1Storage',
    'checkConcurrentUpdates2StoragesMT',
    'checkConcurrentUpdates2Storages',
}

OUR_NAMES = {
    'ZEO.runzeo': 'fsyncstorage.server.runzeo',
    'runzeo.ZEOOptions': 'runzeo.Options',
    'runzeo.ZEOServer': 'runzeo.Runner',
}


def served(suite):
    """The same tests, with our server wherever ZEO's would be started."""
    for test in upstream.flattened(suite):
        test.run = functools.partial(_run_served, test.run)
    return suite


def _run_served(run, *args, **kw):
    # Where processes are spawned, the patch would stay behind.
    fork = mock.patch.dict(os.environ, ZEO_PROCESS_TYPE='fork')
    with fork, mock.patch.object(ZEO.runzeo, 'ZEOServer', Runner):
        return run(*args, **kw)


def over(case, name=None, **attributes):
    """The tests of a class, with these of its attributes changed."""
    made = type(name or case.__name__, (case,), attributes)
    made.__module__ = case.__module__
    suite = upstream.Loader().loadTestsFromTestCase(made)
    suite.layer = ZODB.tests.util.MininalTestLayer('served ' + made.__name__)
    return served(suite)


def over_policy(policy, case=ZEO.tests.testZEO.FullGenericTests, more='',
                encoding='', **attributes):
    config = FSYNCSTORAGE.format(policy=policy, more=more)
    return over(case, f'{case.__name__} {policy} {encoding}'.rstrip(),
                getConfig=lambda self: config, **attributes)


def msgpack(self):
    return ZEO.tests.forker.ZEOConfig(('127.0.0.1', 0), msgpack='true')


def generic_tests():
    cases = ZEO.tests.testZEO
    with_blobs = {'more': 'blob-dir blobs'}
    yield over_policy('group-commit')
    yield over_policy('none')
    yield over_policy('group-commit', encoding='msgpack',
                      getZEOConfig=msgpack)
    yield over_policy(
        'group-commit', cases.BlobAdaptedFileStorageTests, **with_blobs)
    yield over_policy(
        'group-commit', cases.BlobWritableCacheTests, level=2, **with_blobs)
    yield over(cases.FileStorageSSLTests)
    yield over(cases.MappingStorageTests)
    yield over(cases.ClientConflictResolutionTests)
    yield over(cases.FileStorageRecoveryTests)
    yield over(cases.ZRPCConnectionTests)
    for case in (
        cases.FileStorageTests,
        cases.DemoStorageTests,
        cases.FileStorageHexTests,
        cases.FileStorageClientHexTests,
        cases.BlobAdaptedFileStorageTests,
        cases.BlobWritableCacheTests,
    ):
        yield over(case, level=2)
    yield over(cases.FileStorageTests, 'FileStorageTests msgpack', level=2,
               getZEOConfig=msgpack)
    yield over(cases.FileStorageLoadDelayedTests)


def connection_tests():
    for case in ZEO.tests.testConnection.test_classes:
        yield over(case, level=property(
            lambda self: 2 if self._testMethodName in TEN_SECONDS_EACH else 1))
    yield served(doctest.DocTestSuite(
        ZEO.tests.testConnection, setUp=ZEO.tests.forker.setUp,
        tearDown=zope.testing.setupstack.tearDown))


def doctests():
    """The doctests and what else testZEO has, besides its classes of tests."""
    suite = unittest.TestSuite(
        each_in_its_layer(ZEO.tests.testZEO.test_suite(), StorageTestBase))
    suite = upstream.without_the_powers_of_root(upstream.without(
        suite, NOT_OUR_SERVER | MORE_IS_SAID | ONLY_PROTOCOL_5
        | ASKS_SINCE_A_TID_THAT_NEVER_WAS))
    return served(with_our_main(suite))


def each_in_its_layer(suite, left_out):
    for part in suite:
        for test in upstream.flattened(part):
            if not isinstance(test, left_out):
                if hasattr(part, 'layer'):
                    test.layer = part.layer
                yield test


def with_our_main(suite):
    """Where a doctest itself, or a script that it writes, starts a server."""
    for test in upstream.flattened(suite):
        if isinstance(test, doctest.DocTestCase):
            for example in test._dt_test.examples:
                for theirs, our in OUR_NAMES.items():
                    example.source = example.source.replace(theirs, our)
    return suite


class OptionsTests(ZEO.tests.testZEOOptions.TestZEOOptions):

    OptionsClass = Options


def test_suite():
    return unittest.TestSuite([
        *generic_tests(),
        *connection_tests(),
        doctests(),
        unittest.defaultTestLoader.loadTestsFromTestCase(OptionsTests),
    ])
