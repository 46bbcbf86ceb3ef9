"""The suites of ZEO, its stock client over our server.

The default run has what differs in the server, the same tests once: with blobs
and over msgpack, as the others are not.  At level 3 is what goes the same ways
through it with another storage, and what differs in one of the two only; TLS,
which test_conformance_client has with this server.
"""

import functools
import unittest

import ZEO.tests.testZEO
import ZEO.tests.testZEOOptions

from fsyncstorage.server.runzeo import Options

from . import zeosuites
from . import zodbsuites
from .zeosuites import msgpack
from .zeosuites import our_server

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
ANY_ORDER_WILL_DO = {
    # It connects behind a signal, and wants that the signal was served before
    # the connection is logged.
    'runzeo_logrotate_on_sigusr2',
}
CANNOT_HOLD = (ANY_ORDER_WILL_DO | NOT_OUR_SERVER | MORE_IS_SAID
               | ONLY_PROTOCOL_5 | ASKS_SINCE_A_TID_THAT_NEVER_WAS)

FAN_OUT = {'zeo-fan-out_test'}

# Where a doctest itself, or a script that it writes, starts a server.
OUR_NAMES = {
    'ZEO.runzeo': 'fsyncstorage.server.runzeo',
    'runzeo.ZEOOptions': 'runzeo.Options',
    'runzeo.ZEOServer': 'runzeo.Runner',
}


def generic_tests():
    over = functools.partial(zeosuites.over, [our_server])
    over_policy = functools.partial(zeosuites.over_policy, [our_server])
    cases = ZEO.tests.testZEO
    with_blobs = {'more': 'blob-dir blobs'}
    yield over_policy('group-commit', level=3)
    yield over_policy('none', level=3)
    yield over_policy('group-commit', encoding='msgpack',
                      getZEOConfig=msgpack, level=3)
    for encoding in (
        {'encoding': 'msgpack', 'getZEOConfig': msgpack,
         'level': zeosuites.what_each_storage_has(
             cases.BlobAdaptedFileStorageTests,
             zeosuites.OF_THE_CLIENT_ALONE)},
        {'level': 3},
    ):
        yield over_policy(
            'group-commit', cases.BlobAdaptedFileStorageTests,
            **with_blobs, **encoding)
    yield over_policy(
        'group-commit', cases.BlobWritableCacheTests, level=3, **with_blobs)
    yield over(cases.FileStorageSSLTests, level=3)
    yield over(cases.ClientConflictResolutionTests)
    yield over(cases.FileStorageRecoveryTests)
    yield over(cases.ZRPCConnectionTests)
    for case in (
        cases.FileStorageTests,
        cases.DemoStorageTests,
        cases.MappingStorageTests,
        cases.FileStorageHexTests,
        cases.FileStorageClientHexTests,
        cases.BlobAdaptedFileStorageTests,
        cases.BlobWritableCacheTests,
    ):
        yield over(case, level=3)
    yield over(cases.FileStorageTests, 'FileStorageTests msgpack', level=3,
               getZEOConfig=msgpack)
    yield over(cases.FileStorageLoadDelayedTests, level=3)


def in_the_default_run(case):
    return case.__name__.startswith('FileStorage') and (
        'Reconnection' not in case.__name__)  # our client has these


def doctests():
    suite = zeosuites.doctests([our_server], CANNOT_HOLD, OUR_NAMES)
    for test in zodbsuites.flattened(suite):
        # Blobs are the client's alone, and a server that is another one's
        # client has one of ours: they are run with ours.
        alone = zeosuites.suite_of_blobs(test) or test.id() in FAN_OUT
        test.level = 3 if alone else zeosuites.of_doctests(test)
        yield test


class OptionsTests(ZEO.tests.testZEOOptions.TestZEOOptions):

    OptionsClass = Options


def test_suite():
    return zeosuites.lasting(unittest.TestSuite([
        *generic_tests(),
        *zeosuites.connection_tests(
            [our_server], default=in_the_default_run),
        *doctests(),
        unittest.defaultTestLoader.loadTestsFromTestCase(OptionsTests),
    ]))
