"""Running the suites of ZEO with our server, with our client, or with both.

The suites find server and client in modules of ZEO.  `our_server` and
`our_client` put ours there for the length of a test.
"""

import contextlib
import doctest
import functools
import gc
import os
import unittest
import warnings
from unittest import mock

import ZEO.ClientStorage
import ZEO.runzeo
import ZEO.tests.ConnectionTests
import ZEO.tests.forker
import ZEO.tests.testConnection
import ZEO.tests.testZEO
import ZODB.tests.util
import zope.testing.setupstack
from ZEO.Exceptions import ClientDisconnected
from ZEO.tests import CommitLockTests
from ZEO.tests.ConnectionTests import TimeoutTests
from ZEO.tests.testZEO import CommonBlobTests
from ZODB.Connection import TransactionMetaData
from ZODB.tests.MinPO import MinPO
from ZODB.tests.StorageTestBase import StorageTestBase
from ZODB.tests.StorageTestBase import zodb_pickle
from ZODB.utils import z64

from fsyncstorage.client import storage
from fsyncstorage.client.cache import Cache
from fsyncstorage.client.stock import StockClient
from fsyncstorage.client.storage import FsyncClient
from fsyncstorage.errors import OutcomeUnknown
from fsyncstorage.server.runzeo import Runner

from ..support import PATIENCE
from . import zodbsuites

FSYNCSTORAGE = """
%import fsyncstorage
<fsyncstorage 1>
  path Data.fs
  durability {policy}
  {more}
</fsyncstorage>
"""

# They run for a fixed time; at level 2 are shorter ones of the kind.
TEN_SECONDS_EACH = {
    'checkConcurrentUpdates19Storages',
    'checkConcurrentLargeUpdates',
    'checkConcurrentUpdates1Storage',
    'checkConcurrentUpdates2StoragesMT',
    'checkConcurrentUpdates2Storages',
}

# What not every storage has, each of it once.
A_FEW_OF_THE_REST = {
    'checkIteratorParallel',
    'checkUndoInvalidation',
    'testIterateWhileWriting',
    'testLoadBeforeUndo',
    'testLoadSerial',
    'testPackUndoLog',
    'testSimpleTransactionalUndo',
    'testUndoConflictResolution',
}

# Client and server only pass on that there shall be a pack: one is enough.
OTHER_PACKS = {
    'testPackEmptyStorage',
    'testPackJustOldRevisions',
    'testPackLotsWhileWriting',
    'testPackNowWhileWriting',
    'testPackOnlyOneObject',
    'testPackTomorrow',
    'testPackWhileWriting',
    'testPackWithMultiDatabaseReferences',
    'testPackYesterday',
}

# There are others with more threads.
FEWER_THREADS = {
    'checkMTStores',
    'test2StorageThreads',
    'test2ZODBThreads',
    'test4ExtStorageThread',
}

# Stock's client answers by itself, whatever the server is.
OF_THE_CLIENT_ALONE = {
    'checkCreativeGetState',
    'checkSecondBeginFails',
    'checkSortKey',
    'checkStoreBlob_wrong_partition',
    'checkTemporaryDirectory',
    'checkTransactionBufferCleanup',
    'checkVolatileCacheWithImmediateLastTransaction',
    'testAbortNotCommitting',
    'testAbortWrongTrans',
    'testBasics',
    'testBeginCommitting',
    'testFinishNotCommitting',
    'testFinishWrongTrans',
    'testGetSize',
    'testInterfaces',
    'testLen',
    'testNote',
    'testSerialIsNoneForInitialRevision',
    'testStoreNotCommitting',
    'testStoreWrongTrans',
    'test_race_loadopen_vs_local_invalidate',
}

LONG_DOCTESTS = {
    # test_cachefile has kills.
    'ZEO.tests.test_cache.cache_trace_analysis',
    'ZEO.tests.test_cache.kill_does_not_cause_cache_corruption',
    'ZEO.tests.testConnection.invalidations_while_connecting',
    'zeo-fan-out_test',
    'zeo_blob_cache_test',
}

# In every doctest: a record that is read here may not have been formatted,
# and only that gives it a `message`.
IN_EVERY_DOCTEST = {'r.message for r in': 'r.getMessage() for r in'}

# Modules that import the client by its name, and classes that extend it.
NAME_THE_CLIENT = (
    ZEO.ClientStorage, ZEO.tests.ConnectionTests, ZEO.tests.testZEO)
EXTEND_THE_CLIENT = (
    ZEO.tests.ConnectionTests.TestClientStorage,
    ZEO.tests.testZEO.ServerManagingClientStorage)


@contextlib.contextmanager
def our_server():
    # Where processes are spawned, the patch would stay behind.
    fork = mock.patch.dict(os.environ, ZEO_PROCESS_TYPE='fork')
    with fork, mock.patch.object(ZEO.runzeo, 'ZEOServer', Runner):
        yield


class Client(FsyncClient):
    """With what the suites look up in ZEO's client."""

    connection_count_for_tests = 0
    verify_result = None

    @property
    def _connection_generation(self):
        """They wait for another connection until this has risen."""
        return self._number_of_stream

    @property
    def _read_only_fallback(self):
        return self._takes_read_only

    @property
    def _server(self):
        return _Server(self)

    def meet(self, opened):
        stream = super().meet(opened)
        self.connection_count_for_tests += 1
        return stream

    def _verify(self, welcome, about):
        seen = self._cache.last_tid
        self.verify_result = (
            'empty cache' if seen == z64 else
            'Cache up to date' if seen == welcome.tid else
            'cache too old, clearing' if about.get('changed') is None else
            'quick verification')
        super()._verify(welcome, about)


class _Server:

    def __init__(self, client):
        self.client = client

    @property
    def timeout(self):
        return self.client.wait_timeout

    @timeout.setter
    def timeout(self, seconds):
        self.client.wait_timeout = seconds


#: The same for its cache.
OF_THE_CACHE = {
    'clear': lambda cache: cache.begin_anew(cache.last_tid),
    'contents': lambda cache: range(len(cache)),
    'maxsize': property(lambda cache: cache.size),
}


@contextlib.contextmanager
def our_client():
    with contextlib.ExitStack() as stack:
        stack.enter_context(_client(Client))
        for name, value in OF_THE_CACHE.items():
            stack.enter_context(
                mock.patch.object(Cache, name, value, create=True))
        stack.enter_context(mock.patch.object(
            storage, '_path_of_cache', _path_of_cache))
        stack.enter_context(mock.patch.object(
            CommitLockTests.WorkerThread, 'myvote', _my_vote))
        # They close a client while a thread of it commits, which stock's
        # server lets wait in its vote.  With ours it may be in its finish.
        stack.enter_context(mock.patch.object(
            CommitLockTests, 'ClientDisconnected',
            (ClientDisconnected, OutcomeUnknown)))
        yield


def _path_of_cache(*arguments, path_of_cache=storage._path_of_cache):
    """They look whether there is a file of the name that stock gives it."""
    path = path_of_cache(*arguments)
    return path and path.removesuffix('.fsync')


def _my_vote(worker):
    """Theirs sends the vote itself, and says so while it waits."""
    worker.ready.set()
    worker.storage.tpc_vote(worker.trans)


@contextlib.contextmanager
def client_for_stock():
    """Our client of a stock server."""
    with _client(StockClient):
        yield


@contextlib.contextmanager
def _client(client):
    with contextlib.ExitStack() as stack:
        for module in NAME_THE_CLIENT:
            stack.enter_context(
                mock.patch.object(module, 'ClientStorage', client))
        for each in EXTEND_THE_CLIENT:
            stack.callback(setattr, each, '__bases__', each.__bases__)
            each.__bases__ = client,
        yield


CLIENTS = {our_client: Client, client_for_stock: StockClient}

_wait_until = ZEO.tests.forker.wait_until


def wait_patiently(label=None, func=None, timeout=PATIENCE, onfail=None):
    """Theirs waits 3 seconds, in which a busy machine may start no server."""
    return _wait_until(label, func, timeout, onfail)


def lasting(suite):
    """Whenever a server stops, ZEO collects garbage: not among these tests,
    and all that was imported for them."""
    gc.collect()
    gc.freeze()
    return zodbsuites.after_check(suite)


def during(contexts, suite):
    """The same tests, each of them in these contexts."""
    clients = [CLIENTS[each] for each in contexts if each in CLIENTS]
    for test in zodbsuites.flattened(suite):
        test.run = functools.partial(_run, contexts, test.run)
        if clients and isinstance(test, doctest.DocTestCase):
            # A module's names were copied when it was loaded.
            test._dt_test.globs['ClientStorage'], = clients
    return suite


def _run(contexts, run, *args, **kw):
    # A test of theirs leaves the buffer of a transaction open.
    warnings.filterwarnings(
        'ignore', 'unclosed file <_io.BufferedRandom', ResourceWarning)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(
            ZEO.tests.forker, 'wait_until', wait_patiently))
        for context in contexts:
            stack.enter_context(context())
        return run(*args, **kw)


def over(contexts, case, name=None, level=2, **attributes):
    """The tests of a class, with these of its attributes changed."""
    if our_server in contexts and issubclass(case, CommonBlobTests):
        attributes['checkTransactionBufferCleanup'] = _buffer_cleanup
    if our_server in contexts and issubclass(case, TimeoutTests):
        attributes['checkTimeoutAfterVote'] = _timeout_after_vote
    made = type(name or case.__name__, (case,), attributes)
    made.__module__ = case.__module__
    suite = zodbsuites.at_level(
        level, zodbsuites.Loader().loadTestsFromTestCase(made))
    suite.layer = ZODB.tests.util.MininalTestLayer(' '.join(
        [*(context.__name__ for context in contexts), made.__name__]))
    return during(contexts, suite)


def _buffer_cleanup(self):
    """It stores text as data, and our server ends a connection that does: the
    client may notice before the test has ended, or not."""
    store = self._storage.storeBlob

    def store_bytes(oid, serial, data, *arguments):
        store(oid, serial, data.encode(), *arguments)

    self._storage.storeBlob = store_bytes
    CommonBlobTests.checkTransactionBufferCleanup(self)


def _timeout_after_vote(self):
    """Theirs wants the client to be disconnected.  Ours stays, is told at the
    finish, and then goes on."""
    self._storage = storage = self.openClientStorage()
    other = self.openClientStorage()
    connections = storage.connection_count_for_tests
    late, next_one = TransactionMetaData(), TransactionMetaData()
    oid, data = storage.new_oid(), zodb_pickle(MinPO(7))
    for each, metadata in (storage, late), (other, next_one):
        each.tpc_begin(metadata)
        each.store(oid, z64, data, '', metadata)
        each.tpc_vote(metadata)  # the second one when the first is over
    other.tpc_abort(next_one)
    other.close()
    self.assertTrue(storage.is_connected())
    self.assertEqual(storage.connection_count_for_tests, connections)
    with self.assertRaises(ClientDisconnected):
        storage.tpc_finish(late)
    storage.tpc_abort(late)
    self.assertEqual(len(storage._cache), 0)
    self._dostore()


def what_each_storage_has(case, left_out=frozenset()):
    """The level of its tests: at 2, its own, those that are for every storage,
    and a few of undo, packs and iteration, of which the client and the server
    only pass on what is asked."""
    cases = ZEO.tests.testZEO
    rest = {*dir(cases.FullGenericTests)} - {
        *dir(cases.GenericTests), *A_FEW_OF_THE_REST}
    rest |= left_out | OTHER_PACKS | FEWER_THREADS
    assert all(hasattr(case, name) for name in A_FEW_OF_THE_REST)

    def level(test):
        return 2 + (test._testMethodName in rest)

    return level


def a_few(test):
    """The level of its tests, where another suite goes the same ways."""
    return 2 if test._testMethodName in A_FEW_OF_THE_REST else 3


def over_policy(contexts, policy, case=ZEO.tests.testZEO.FullGenericTests,
                more='', encoding='', **attributes):
    config = FSYNCSTORAGE.format(policy=policy, more=more)
    return over(contexts, case,
                f'{case.__name__} {policy} {encoding}'.rstrip(),
                getConfig=lambda self: config, **attributes)


def msgpack(self):
    return ZEO.tests.forker.ZEOConfig(('127.0.0.1', 0), msgpack='true')


def left_out(*names):
    """Attributes for `over`: without these tests."""
    cases = [*vars(ZEO.tests.testZEO).values(),
             *ZEO.tests.testConnection.test_classes]
    for name in names:
        assert any(hasattr(case, name) for case in cases), name
    return dict.fromkeys(names)


def connection_tests(contexts, default, **attributes):
    """testConnection, at level 3 what `make test` has no time for."""
    for case in ZEO.tests.testConnection.test_classes:
        more = TEN_SECONDS_EACH if default(case) else dir(case)
        yield over(
            contexts, case,
            level=lambda test, more=more: 2 + (test._testMethodName in more),
            **attributes)
    yield zodbsuites.at_level(of_doctests, during(
        contexts, doctest.DocTestSuite(
            ZEO.tests.testConnection, setUp=ZEO.tests.forker.setUp,
            tearDown=zope.testing.setupstack.tearDown)))


def doctests(contexts, excluded, rewrite):
    """The doctests and what else testZEO has, besides its classes of tests."""
    suite = unittest.TestSuite(
        _each_in_its_layer(ZEO.tests.testZEO.test_suite(), StorageTestBase))
    suite = zodbsuites.without_the_powers_of_root(
        zodbsuites.without(suite, excluded))
    return during(contexts, rewritten(suite, IN_EVERY_DOCTEST | rewrite))


def of_doctests(test):
    """The level; a shared directory of blobs is like one of each client."""
    shared = 'StorageShared' in suite_of_blobs(test)
    return 3 if shared or test.id() in LONG_DOCTESTS else 2


def suite_of_blobs(test):
    """The name of ZODB's suite of blobs that the test belongs to, or ''."""
    name = getattr(getattr(test, 'layer', None), '__name__', '')
    return name if 'BlobTests' in name else ''


def _each_in_its_layer(suite, left_out):
    for part in suite:
        for test in zodbsuites.flattened(part):
            if not isinstance(test, left_out):
                if hasattr(part, 'layer'):
                    test.layer = part.layer
                yield test


def rewritten(suite, words):
    """With these words of the doctests replaced by others."""
    for test in zodbsuites.flattened(suite):
        if isinstance(test, doctest.DocTestCase):
            for example in test._dt_test.examples:
                for theirs, our in words.items():
                    example.source = example.source.replace(theirs, our)
                    example.want = example.want.replace(theirs, our)
                    if example.exc_msg is not None:
                        example.exc_msg = example.exc_msg.replace(theirs, our)
    return suite
