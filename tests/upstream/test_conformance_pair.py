"""The suites of ZEO, its stock client over a server whose storage is a node,
beside which another one follows, and takes over when the server stops.
"""

import unittest

import ZEO.tests.testConnection
import ZEO.tests.testZEO

from . import pairsuites
from . import zeosuites
from . import zodbsuites
from .zeosuites import our_server

# They start a server with a storage that is opened to read, and no node is.
READ_ONLY_STORAGES = {
    'checkReadOnlyFallbackReadOnlyStorage',
    'checkReadOnlyStorage',
    'checkReconnectFallback',
    'checkReconnectReadOnly',
    'checkReconnectSwitch',
    'checkReconnectUpgrade',
}


def over(case, name, **attributes):
    return zeosuites.over(
        [our_server, pairsuites.pairs], case, name, **attributes)


def generic_tests():
    cases = ZEO.tests.testZEO
    yield over(cases.FullGenericTests, 'FullGenericTests pair',
               level=zeosuites.a_few,
               getConfig=lambda self: pairsuites.config())
    yield over(cases.BlobAdaptedFileStorageTests, 'Blobs pair', level=3,
               blobdir=pairsuites.BLOBS_OF_THE_FIRST,
               getConfig=lambda self: pairsuites.config(
                   more=pairsuites.WITH_BLOBS))


def connection_tests():
    """Servers that are stopped, and started again on the other node."""
    cases = ZEO.tests.testConnection
    for case, level in (
        (cases.FileStorageReconnectionTests, 2),
        (cases.FileStorageConnectionTests, 3),
        (cases.FileStorageInvqTests, 3),
        (cases.FileStorageTimeoutTests, 3),
    ):
        yield over(case, f'{case.__name__} pair', level=level,
                   getConfig=_named)


def _named(self, path, create, read_only):
    return pairsuites.config(path, create)


def test_suite():
    suite = unittest.TestSuite([*generic_tests(), *connection_tests()])
    return zeosuites.lasting(
        zodbsuites.without(suite, READ_ONLY_STORAGES))
