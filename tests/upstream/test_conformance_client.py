"""The suites of ZEO: our client over our server, and the one that it is over
ZEO's.

At level 2 is each way through the client once, over our server; all else is at
level 3: ZEO's server, TLS, other storages, and what the client only passes on.
"""

import functools
import unittest

import ZEO.tests.test_client_side_conflict_resolution
import ZEO.tests.test_sync
import ZEO.tests.testZEO

from . import zeosuites
from . import zodbsuites
from .test_conformance_zeo import ANY_ORDER_WILL_DO
from .test_conformance_zeo import CANNOT_HOLD as NOT_WITH_OUR_SERVER
from .test_conformance_zeo import OUR_NAMES as OF_OUR_SERVER
from .zeosuites import client_for_stock
from .zeosuites import msgpack
from .zeosuites import our_client
from .zeosuites import our_server

STOCK = [client_for_stock]
BOTH = [our_client, our_server]

# Tests that cannot hold, with the reason.
NO_RENAME_AT_ALL = {
    # To have a blob in another file system, they let every os.rename fail,
    # also those within the blob cache.
    'commit_from_wrong_partition',
}
NOT_FOR_EVERYBODY = {
    # Who may read the directory may read the blobs, it says.  A blob in the
    # cache is for who runs the client.
    'test_blob_file_permissions',
}
NOT_WITH_OUR_CACHE_OF_BLOBS = NO_RENAME_AT_ALL | NOT_FOR_EVERYBODY

INSIDE_OF_STOCKS_CLIENT = {
    # A mock in the place of the connection to the server.
    'test_ZEO_client_convenience',
    # Breaks the buffer of a transaction.
    'tpc_finish_error',
    # Looks for the thread of the event loop, by its name.
    'client_asyncore_thread_has_name',
    # The version of ZEO's protocol.
    'test_runzeo_msgpack_support',
}
READ_WHEN_IT_IS_WANTED = {
    # It waits until all that was prefetched is in the cache.
    'test_prefetch',
}
CANNOT_HOLD_AT_STOCKS_SERVER = (
    NOT_WITH_OUR_CACHE_OF_BLOBS | ANY_ORDER_WILL_DO
    | {'test_ZEO_client_convenience'})
CANNOT_HOLD = (
    NOT_WITH_OUR_CACHE_OF_BLOBS | INSIDE_OF_STOCKS_CLIENT
    | READ_WHEN_IT_IS_WANTED | NOT_WITH_OUR_SERVER)

# The same in classes of tests.
NO_RENAME_AT_ALL_IN_A_CASE = zeosuites.left_out(
    'checkStoreBlob_wrong_partition')
CANNOT_HOLD_IN_A_CASE = NO_RENAME_AT_ALL_IN_A_CASE | zeosuites.left_out(
    # A cache of 900 bytes has room for one object, it says.
    'checkDisconnectedCacheFails',
    # It opens a cache with another size, which begins empty.
    'checkQuickVerificationWith2Clients',
    # The second transaction of a client waits in its tpc_begin, it says.
    'checkSecondBeginFails',
    # The numbers of iterators at the server, and when it is told to close
    # them.
    'checkIteratorExhaustionStorage',
    'checkIteratorGCProtocol',
    'checkIteratorGCStorageCommitting',
    'checkIteratorGCStorageDisconnect',
    'checkIteratorGCStorageTPCAborting',
    # What the server has told, as it lies in the client.
    'checkInterfaceFromRemoteStorage',
    # Bytes of ZEO's protocol, sent by its event loop.
    'checkBadMessage1',
    'checkBadMessage2',
    # They break the event loop, end its connection, or read what it logs.
    'checkCatastrophicClientLoopFailure',
    'checkConnectionInvalidationOnReconnect',
    'checkExceptionLogsAtError',
)

# Of the doctests: the name of the class, and of what it has inside.
OUR_NAMES_AT_STOCKS_SERVER = {
    "'ClientStorage')": "'StockClient')",
    'storage._blob_cache_size\n': 'storage._blobs and storage._blobs._limit\n',
    # There is no such thing.
    'print(storage._blob_cache_size_check)': '104857600',
}
OUR_NAMES = OUR_NAMES_AT_STOCKS_SERVER | {
    "'ClientStorage')": "'Client')",
    'it.next()': 'next(it)',
    'it2.next()': 'next(it2)',
    'ClientDisconnected: Disconnected iterator':
        'ClientDisconnected: the server has closed it',
    "client._call('loadBefore', b'\\0'*8, maxtid)":
        "client.loadBefore(b'\\0'*8, maxtid)",
    # Where it is logged, how, and how often.
    "'ZEO', level=logging.ERROR)": "'fsyncstorage', level=logging.WARNING)",
    "x.levelname == 'CRITICAL' and": '',
    "'Client cache is out of sync with the server.' in x.msg":
        "'this client has seen' in x.getMessage()",
    ']) >= 2, 30)': ']) >= 1, 30)',
    # (Before, it may have been logged that there is no server yet.)
    'len(e.storage._cache), str(handler),':
        "len(e.storage._cache), 'is dropped' in str(handler),",
    ", '', 'StaleCache')": ", False, 'StaleCache')",
    'ZEO... CRITICAL\n  test dropping stale cache':
        'fsyncstorage... WARNING\n  test: the ...ache is dropped...',
}


def generic_tests():
    cases = ZEO.tests.testZEO
    for servers, level, left_out in (
        (STOCK, 3, NO_RENAME_AT_ALL_IN_A_CASE),
        (BOTH, 2, CANNOT_HOLD_IN_A_CASE),
    ):
        over = functools.partial(zeosuites.over, servers, **left_out)
        yield over(cases.ClientConflictResolutionTests, level=level)
        yield over(cases.FileStorageRecoveryTests, level=3)
        yield over(cases.ZRPCConnectionTests, level=level)
        yield over(cases.FileStorageSSLTests, level=3)
        yield over(cases.FileStorageLoadDelayedTests, level=3)
    over = functools.partial(
        zeosuites.over, STOCK, level=3, **NO_RENAME_AT_ALL_IN_A_CASE)
    for case in (
        cases.BlobAdaptedFileStorageTests,
        cases.BlobWritableCacheTests,
        cases.FileStorageTests,
        cases.FileStorageHexTests,
        cases.FileStorageClientHexTests,
        cases.DemoStorageTests,
        cases.MappingStorageTests,
    ):
        yield over(case)
    yield zeosuites.over(
        STOCK, cases.FileStorageTests, 'FileStorageTests msgpack',
        getZEOConfig=msgpack, level=zeosuites.a_few)
    over = functools.partial(
        zeosuites.over_policy, BOTH, 'group-commit', **CANNOT_HOLD_IN_A_CASE)
    yield over(
        cases.BlobAdaptedFileStorageTests, more='blob-dir blobs',
        level=zeosuites.what_each_storage_has(
            cases.BlobAdaptedFileStorageTests))
    yield over(cases.BlobWritableCacheTests, more='blob-dir blobs', level=3)
    yield over(level=3)


def in_the_default_run(case):
    """At level 2 is one storage; TLS is at level 3."""
    return case.__name__.startswith('FileStorage')


def small_tests():
    for case in (
        ZEO.tests.test_sync.SyncTests,
        ZEO.tests.test_client_side_conflict_resolution
        .ClientSideConflictResolutionTests,
    ):
        yield zeosuites.over(STOCK, case)


def test_suite():
    return zeosuites.lasting(unittest.TestSuite([
        *generic_tests(),
        zodbsuites.at_level(3, unittest.TestSuite(
            zeosuites.connection_tests(STOCK, default=lambda case: False))),
        *zeosuites.connection_tests(
            BOTH, default=in_the_default_run, **CANNOT_HOLD_IN_A_CASE),
        zodbsuites.at_level(3, zeosuites.doctests(
            STOCK, CANNOT_HOLD_AT_STOCKS_SERVER, OUR_NAMES_AT_STOCKS_SERVER)),
        zodbsuites.at_level(
            zeosuites.of_doctests,
            zeosuites.doctests(BOTH, CANNOT_HOLD, OUR_NAMES | OF_OUR_SERVER)),
        *small_tests(),
    ]))
