"""Three members of etcd as one process: what our log asks of them, by gRPC.

All of them have the same data, and answer as etcd does: so what needs a log on
etcd can be tested where there is no etcd.  (What etcd really answers is seen
by test_quorum_etcd.)  Each member can be told to answer something else.
"""

import concurrent.futures
import contextlib
import threading
from unittest import mock

import grpc

from fsyncstorage.quorum.etcd.engine import EtcdLog
from fsyncstorage.quorum.etcd.messages import CLASSES
from fsyncstorage.quorum.etcd.settings import Settings
from fsyncstorage.quorum.etcd.settings import address
from fsyncstorage.quorum.log.interface import clock

from ..support import PATIENCE
from ..support import TestCase

MEMBERS = 3
CLUSTER = 77
#: Calls at once.
CALLS = 20

KV = '/etcdserverpb.KV/'
STATUS = '/etcdserverpb.Maintenance/Status'
ALARM = '/etcdserverpb.Maintenance/Alarm'
MEMBER_LIST = '/etcdserverpb.Cluster/MemberList'

#: Of a comparison.
GREATER, CREATE = 1, 1

#: Of gRPC, by their numbers.
CODES = {code.value[0]: code for code in grpc.StatusCode}


class Store:

    def __init__(self):
        self.changed = threading.Lock()
        self.values = {}
        self.revision = 1
        #: It has the alarm of a full database.
        self.full = False

    def span(self, request):
        key, end = request.key, request.range_end
        return sorted(
            each for each in self.values
            if (key <= each < end if end else each == key))

    def range(self, request):
        keys = self.span(request)
        return {'kvs': [
            {'key': key,
             'value': b'' if request.keys_only else self.values[key]}
            for key in keys[:request.limit or len(keys)]]}

    def holds(self, compare):
        keys = self.span(compare)
        if compare.target == CREATE:
            return bool(keys) is (compare.result == GREATER)
        return bool(keys) and self.values[keys[0]] == compare.value

    def txn(self, request):
        succeeded = all(map(self.holds, request.compare))
        return {'succeeded': succeeded, 'responses': list(map(
            self.done, request.success if succeeded else request.failure))}

    def done(self, operation):
        if operation.HasField('request_range'):
            return {'response_range': self.range(operation.request_range)}
        if operation.HasField('request_put'):
            self.values[operation.request_put.key] = (
                operation.request_put.value)
            self.revision += 1
        else:
            self.delete_range(operation.request_delete_range)
        return {}

    def delete_range(self, request):
        keys = self.span(request)
        for key in keys:
            del self.values[key]
        self.revision += bool(keys)
        return {}


class Call:
    """A question, and who has asked."""

    def __init__(self, path, request, context):
        self.path = path
        self.request = request
        self._context = context
        self._ended = threading.Event()
        if not context.add_callback(self._ended.set):
            self._ended.set()

    @property
    def has_ended(self):
        return self._ended.is_set()

    def fail(self, code, words):
        self._context.abort(CODES[code], words)

    def wait_for_the_end(self):
        """Of the call, by its other end."""
        self._ended.wait()


class Handler(grpc.GenericRpcHandler):

    def __init__(self, gateway):
        self.gateway = gateway

    def service(self, details):
        path = details.method
        name = path.rpartition('/')[2]
        return grpc.unary_stream_rpc_method_handler(
            lambda request, context: self.gateway.asked_by(
                Call(path, request, context)),
            CLASSES[f'{name}Request'].FromString)


class Gateway:
    """A member."""

    def __init__(self, store, number):
        self.store = store
        self.number = number
        self.version = '3.6.1'
        self.cluster = CLUSTER
        self.voting = MEMBERS
        #: What was asked: paths and requests.
        self.asked = []
        #: Called with a call: the answers, as bytes; None: as it should.
        self.instead = lambda call: None
        #: Changes an answer.
        self.altered = lambda path, answer: None
        self.threads = concurrent.futures.ThreadPoolExecutor(CALLS)
        self.server = grpc.server(
            self.threads, [Handler(self)],
            options=[('grpc.so_reuseport', 0)])
        self.address = 'http://127.0.0.1:%d' % (
            self.server.add_insecure_port('127.0.0.1:0'))
        self.server.start()

    def asked_by(self, call):
        self.asked.append((call.path, call.request))
        instead = self.instead(call)
        if instead is not None:
            yield from instead
            return
        with self.store.changed:
            answer = self.answer(call.path, call.request)
        self.altered(call.path, answer)
        yield answer.SerializeToString()

    def answer(self, path, request):
        store = self.store
        body = {
            KV + 'Range': store.range,
            KV + 'Txn': store.txn,
            KV + 'DeleteRange': store.delete_range,
            KV + 'Compact': lambda request: {},
            STATUS: self.status,
            ALARM: self.alarm,
            MEMBER_LIST: lambda request: {'members': [{}] * self.voting},
        }[path](request)
        return answer_to(path, header={
            'cluster_id': self.cluster, 'member_id': self.number + 1,
            'revision': store.revision}, **body)

    def status(self, request):
        return {'version': self.version, 'dbSize': 20480, 'leader': 2,
                'dbSizeInUse': 16384, 'dbSizeQuota': 1 << 31}

    def alarm(self, request):
        return {'alarms': [{'memberID': 1, 'alarm': 1}]
                } if self.store.full else {}

    def close(self):
        self.server.stop(None).wait()
        self.threads.shutdown()


def answer_to(path, **fields):
    return CLASSES[path.rpartition('/')[2] + 'Response'](**fields)


class Gateways:
    """All of them."""

    def __init__(self):
        self.store = Store()
        self.members = [Gateway(self.store, n) for n in range(MEMBERS)]

    @property
    def addresses(self):
        return [each.address for each in self.members]

    def close(self):
        for each in self.members:
            each.close()


class OneCall(EtcdLog):
    """Where a test needs no halves of an append."""

    def append(self, before, place, raw):
        self.ask(before, place, raw)
        self.answered()


class GatewaysCase(TestCase):
    """A test of the log on these members."""

    #: Seconds of a call: less than in use, since tests wait for them.
    patience = PATIENCE

    def setUp(self):
        super().setUp()
        self.gateways = Gateways()
        self.addCleanup(self.gateways.close)
        self.store = self.gateways.store

    def another(self, clock=clock, **options):
        log = OneCall(Settings(
            list(map(address, self.gateways.addresses)), 'test', **options),
            clock)
        log.cluster.patience = self.patience
        self.addCleanup(log.close)
        return log

    @contextlib.contextmanager
    def with_data(self, gateway, change):
        """This member has the data as `change` leaves them."""
        own = dict(self.store.values)
        change(own)
        real = gateway.answer

        def answer(path, request):
            values, self.store.values = self.store.values, own
            try:
                return real(path, request)
            finally:
                self.store.values = values

        with mock.patch.object(gateway, 'answer', answer):
            yield
