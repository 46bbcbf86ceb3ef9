"""The suites of ZEO, its stock client over our server."""

import functools
import os
import unittest
from unittest import mock

import ZEO.runzeo
import ZEO.tests.testConnection
import ZEO.tests.testZEO
import ZODB.tests.util

from fsyncstorage.server.runzeo import Runner

from . import upstream

FSYNCSTORAGE = """
%import fsyncstorage
<fsyncstorage 1>
  path Data.fs
  durability {policy}
</fsyncstorage>
"""


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
    made = type(name or case.__name__, (case,), attributes)
    made.__module__ = case.__module__
    suite = upstream.Loader().loadTestsFromTestCase(made)
    suite.layer = ZODB.tests.util.MininalTestLayer('served ' + made.__name__)
    return served(suite)


def over_policy(policy, **attributes):
    return over(
        ZEO.tests.testZEO.FullGenericTests, f'FullGenericTests {policy}',
        getConfig=lambda self: FSYNCSTORAGE.format(policy=policy),
        **attributes)


def test_suite():
    cases = ZEO.tests.testZEO
    return unittest.TestSuite([
        over_policy('group-commit'),
        over_policy('none'),
        over(cases.FileStorageTests),
        over(cases.MappingStorageTests),
        over(cases.DemoStorageTests),
        over(cases.FileStorageHexTests),
        over(cases.FileStorageClientHexTests),
        over(cases.FileStorageSSLTests),
        over(cases.FileStorageRecoveryTests),
        over(cases.ZRPCConnectionTests),
        over(cases.BlobAdaptedFileStorageTests),
        over(cases.BlobWritableCacheTests),
        over(cases.ClientConflictResolutionTests),
    ])
