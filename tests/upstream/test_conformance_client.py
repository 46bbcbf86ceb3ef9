"""The suites of ZEO, our client over ZEO's server and over ours.

At level 2 is each way through the client once, over our server; all else is at
level 3: ZEO's server, TLS, other storages, and what the client only passes on.
"""

import functools
import unittest
from unittest import mock

import ZEO.cache
import ZEO.tests.test_cache
import ZEO.tests.test_client_side_conflict_resolution
import ZEO.tests.test_sync
import ZEO.tests.testZEO

from fsyncstorage.client.cache import Cache

from . import zeosuites
from . import zodbsuites
from .test_conformance_zeo import ANY_ORDER_WILL_DO
from .test_conformance_zeo import CANNOT_HOLD as NOT_WITH_OUR_SERVER
from .test_conformance_zeo import OUR_NAMES as OF_OUR_SERVER
from .zeosuites import msgpack
from .zeosuites import our_client
from .zeosuites import our_server

STOCK = [our_client]
BOTH = [our_client, our_server]

# Tests that cannot hold, with the reason.
GIVES_ANOTHER_CONNECTION = {
    # A mock in the place of the connection to the server.
    'test_ZEO_client_convenience',
}
NO_RENAME_AT_ALL = {
    # To have a blob in another file system, they let every os.rename fail,
    # also those within the blob cache.
    'commit_from_wrong_partition',
}
NOT_IN_A_CASE = {'checkStoreBlob_wrong_partition': None}  # the same

NOT_FOR_EVERYBODY = {
    # Who may read the directory may read the blobs, it says.  A blob in the
    # cache is for who runs the client.
    'test_blob_file_permissions',
}
READ_WHEN_IT_IS_WANTED = {
    # It waits until all that was prefetched is in the cache.
    'test_prefetch',
}
SIDE_BY_SIDE = {
    # The second transaction of a client waits in its tpc_begin, it says.
    'checkSecondBeginFails': None,
}
CANNOT_HOLD = (GIVES_ANOTHER_CONNECTION | NO_RENAME_AT_ALL | NOT_FOR_EVERYBODY
               | ANY_ORDER_WILL_DO)
CANNOT_HOLD_WITH_CHANNELS = (
    CANNOT_HOLD | READ_WHEN_IT_IS_WANTED | NOT_WITH_OUR_SERVER)

# Of the doctests: the name of the class, and of what it has inside.
OUR_NAMES = {
    "'ClientStorage')": "'FsyncClient')",
    'storage._blob_cache_size\n': 'storage._blobs and storage._blobs._limit\n',
    # There is no such thing.
    'print(storage._blob_cache_size_check)': '104857600',
    # Another way to break it.
    'tbuf.client_resolved = None': (
        'tbuf._data = {type("Oid", (bytes,), {"__getitem__":'
        ' lambda self, key: self.missing})(8): None}'),
}


def generic_tests():
    cases = ZEO.tests.testZEO
    for servers, level in (STOCK, 3), (BOTH, 2):
        over = functools.partial(zeosuites.over, servers)
        yield over(cases.ClientConflictResolutionTests, level=level)
        yield over(cases.FileStorageRecoveryTests, level=3)
        yield over(cases.ZRPCConnectionTests, level=level)
        yield over(cases.FileStorageSSLTests, level=3)
        yield over(cases.FileStorageLoadDelayedTests, level=3)
    yield zeosuites.over(
        STOCK, cases.BlobAdaptedFileStorageTests, level=3, **NOT_IN_A_CASE)
    for case in (
        cases.BlobWritableCacheTests,
        cases.FileStorageTests,
        cases.FileStorageHexTests,
        cases.FileStorageClientHexTests,
        cases.DemoStorageTests,
        cases.MappingStorageTests,
    ):
        yield zeosuites.over(STOCK, case, level=3)
    yield zeosuites.over(
        STOCK, cases.FileStorageTests, 'FileStorageTests msgpack',
        getZEOConfig=msgpack, level=zeosuites.a_few)
    over = functools.partial(
        zeosuites.over_policy, BOTH, 'group-commit', **SIDE_BY_SIDE)
    yield over(
        cases.BlobAdaptedFileStorageTests, more='blob-dir blobs',
        level=zeosuites.what_each_storage_has(
            cases.BlobAdaptedFileStorageTests), **NOT_IN_A_CASE)
    yield over(cases.BlobWritableCacheTests, more='blob-dir blobs', level=3)
    yield over(level=3)
    yield over(encoding='msgpack', getZEOConfig=msgpack, level=3)


def in_the_default_run(case):
    """At level 2 is one storage; TLS is at level 3."""
    return case.__name__.startswith('FileStorage')


def cache_tests():
    """ZEO's tests of its cache, over ours."""
    return zodbsuites.at_level(zeosuites.of_doctests, zeosuites.during(
        [our_cache], ZEO.tests.test_cache.test_suite()))


def our_cache():
    return mock.patch.object(ZEO.cache, 'ClientCache', Cache)


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
        *zeosuites.connection_tests(BOTH, default=in_the_default_run),
        zodbsuites.at_level(
            3, zeosuites.doctests(STOCK, CANNOT_HOLD, OUR_NAMES)),
        zodbsuites.at_level(
            zeosuites.of_doctests,
            zeosuites.doctests(BOTH, CANNOT_HOLD_WITH_CHANNELS,
                               OUR_NAMES | OF_OUR_SERVER)),
        cache_tests(),
        *small_tests(),
    ]))
