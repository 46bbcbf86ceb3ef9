"""Three members of etcd as one process: what our log asks of them, by gRPC.

All of them have the same data, and answer as etcd does: so the tests of the
log on etcd run where there is no etcd.  (What etcd really answers is seen by
the same tests in test_quorum_etcd.)  Each member can be told to answer
something else.
"""

import contextlib
import socket
import socketserver
import sys
import threading
import urllib.parse
from unittest import mock

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived
from h2.events import RequestReceived
from h2.events import StreamEnded

from fsyncstorage.quorum.etcd.engine import EtcdLog
from fsyncstorage.quorum.etcd.settings import Settings
from fsyncstorage.quorum.etcd.settings import address
from fsyncstorage.quorum.log.interface import clock

from ..support import PATIENCE
from ..support import TestCase
from .etcdmessages import CALLS
from .etcdmessages import PREFIX
from .etcdmessages import decoded
from .etcdmessages import encoded
from .etcdmessages import framed

MEMBERS = 3
CLUSTER = 77

KV = '/etcdserverpb.KV/'
WATCH = '/etcdserverpb.Watch/Watch'
AUTHENTICATE = '/etcdserverpb.Auth/Authenticate'
STATUS = '/etcdserverpb.Maintenance/Status'
ALARM = '/etcdserverpb.Maintenance/Alarm'
DEFRAGMENT = '/etcdserverpb.Maintenance/Defragment'
MEMBER_LIST = '/etcdserverpb.Cluster/MemberList'

#: Of a comparison; of what becomes of an alarm.
CREATE, DEACTIVATE = 1, 2

BEGIN = [(':status', '200'), ('content-type', 'application/grpc')]


class Failing(Exception):
    """An error of etcd: code of gRPC, words."""


class Store:

    def __init__(self):
        self.changed = threading.Condition()
        self.values = {}
        self.revision = 1
        #: No put is taken; and there would be room.
        self.full = self.has_free_pages = False
        self.users = {}  # passwords, by name
        self.tokens = set()

    def span(self, request):
        key, end = request['key'], request.get('range_end')
        return sorted(
            each for each in self.values
            if (key <= each < end if end else each == key))

    def range(self, request):
        keys = self.span(request)
        limit = request.get('limit', 0) or len(keys)
        found = []
        for key in keys[:limit]:
            pair = {'key': key, 'create_revision': 2, 'version': 1}
            if self.values[key] and not request.get('keys_only'):
                pair['value'] = self.values[key]
            found.append(pair)
        return {'kvs': found, 'count': len(keys)} if found else {}

    def holds(self, compare):
        keys = self.span(compare)
        if compare['target'] == CREATE:
            return not keys
        return bool(keys) and self.values[keys[0]] == compare['value']

    def txn(self, request):
        puts = any('put' in each for name in ('success', 'failure')
                   for each in request.get(name, ()))
        if self.full and puts:
            raise Failing(8, 'etcdserver: mvcc: database space exceeded')
        succeeded = all(map(self.holds, request.get('compare', ())))
        operations = request.get('success' if succeeded else 'failure', ())
        answer = {'responses': [
            {kind: getattr(self, kind)(argument)}
            for each in operations for kind, argument in each.items()]}
        if succeeded:
            answer['succeeded'] = True
        return answer

    def put(self, request):
        self.values[request['key']] = request.get('value', b'')
        self.revision += 1
        return {}

    def delete_range(self, request):
        keys = self.span(request)
        for key in keys:
            del self.values[key]
        self.revision += bool(keys)
        return {'deleted': len(keys)} if keys else {}


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request, address):
        """A client that is gone is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, address)


class Handler(socketserver.BaseRequestHandler):
    """A connection, with one question after the other."""

    def setup(self):
        self.connection = self.request
        self.connection.settimeout(PATIENCE)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.gateway = self.server.gateway
        self.gateway.connections.add(self.connection)
        self.is_over = False

    def finish(self):
        self.gateway.connections.discard(self.connection)

    def handle(self):
        if self.gateway.at_first is not None:
            self.gateway.at_first(self)
            return
        self.http = H2Connection(H2Configuration(
            client_side=False, header_encoding='latin-1'))
        self.http.initiate_connection()
        self.flush()
        while not self.is_over:
            data = self.connection.recv(1 << 16)
            if not data:
                break
            for event in self.http.receive_data(data):
                self.take(event)
            if not self.is_over:
                self.flush()

    def flush(self):
        self.connection.sendall(self.http.data_to_send())

    def take(self, event):
        if isinstance(event, RequestReceived):
            headers = dict(event.headers)
            self.stream, self.path = event.stream_id, headers[':path']
            self.token = headers.get('token')
            self.body = b''
        elif isinstance(event, DataReceived):
            self.body += event.data
            self.http.acknowledge_received_data(
                event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            compressed, length = PREFIX.unpack_from(self.body)
            assert not compressed and length == len(self.body) - PREFIX.size
            self.asked(decoded(CALLS[self.path][0], self.body[PREFIX.size:]))

    def asked(self, request):
        gateway, store = self.gateway, self.gateway.store
        gateway.asked.append((self.path, request))
        if gateway.instead is not None and gateway.instead(self, request):
            return
        try:
            with store.changed:
                gateway.check(self.path, self.token)
                answer = gateway.answer(self.path, request)
                store.changed.notify_all()
        except Failing as error:
            self.fail(*error.args)
            return
        if self.path == WATCH:
            self.watch(request['create_request'])
        else:
            self.send(gateway.altered(self.path, answer))

    # What it sends

    def send(self, message):
        self.send_body(framed(encoded(CALLS[self.path][1], message)))

    def fail(self, code, words):
        self.http.send_headers(self.stream, [
            *BEGIN, ('grpc-status', str(code)),
            ('grpc-message', urllib.parse.quote(words))], end_stream=True)
        self.flush()

    def send_body(self, raw):
        """All of an answer, whatever it is."""
        self.begin_stream()
        self.send_data(raw)
        self.end_stream()

    def begin_stream(self):
        self.http.send_headers(self.stream, BEGIN)

    def send_data(self, raw):
        most = self.http.max_outbound_frame_size
        for at in range(0, len(raw), most):
            self.http.send_data(self.stream, raw[at:at + most])
        self.flush()

    def send_chunk(self, message):
        self.send_data(framed(encoded(CALLS[self.path][1], message)))

    def end_stream(self):
        self.http.send_headers(
            self.stream, [('grpc-status', '0'), ('grpc-message', '')],
            end_stream=True)
        self.flush()

    def send_raw(self, raw):
        """Instead of HTTP/2."""
        self.connection.sendall(raw)

    def wait_for_the_end(self):
        """Of the connection, by its other end."""
        self.is_over = True
        with contextlib.suppress(OSError):
            while self.connection.recv(1 << 16):
                pass

    def watch(self, request):
        store, key = self.gateway.store, request['key']
        with store.changed:
            shown = store.values.get(key)
        self.is_over = True
        self.begin_stream()
        self.send_chunk({'created': True})
        while not self.gateway.closed:
            with store.changed:
                store.changed.wait_for(
                    lambda: self.gateway.closed
                    or store.values.get(key) != shown, 1)
                value = store.values.get(key)
            if value != shown and value is not None:
                self.send_chunk({'events': [
                    {'kv': {'key': key, 'value': value}}]})
            shown = value


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
        #: Called with a handler and a request: true, if it has answered.
        self.instead = None
        #: Called with a handler: it has the connection from the beginning.
        self.at_first = None
        #: What it makes of an answer.
        self.altered = lambda path, answer: answer
        self.closed = False
        self.connections = set()
        self.server = Server(('127.0.0.1', 0), Handler)
        self.server.gateway = self
        self.thread = threading.Thread(
            target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    @property
    def address(self):
        return 'http://127.0.0.1:%d' % self.server.server_address[1]

    def check(self, path, token):
        if not self.store.users or path in (AUTHENTICATE, STATUS):
            return
        if token is None:
            raise Failing(3, 'etcdserver: user name is empty')
        if token not in self.store.tokens:
            raise Failing(16, 'etcdserver: invalid auth token')

    def answer(self, path, request):
        store = self.store
        body = {
            KV + 'Range': store.range,
            KV + 'Txn': store.txn,
            KV + 'DeleteRange': store.delete_range,
            KV + 'Compact': lambda request: {},
            WATCH: lambda request: {},
            AUTHENTICATE: self.authenticate,
            STATUS: self.status,
            ALARM: self.alarm,
            DEFRAGMENT: lambda request: {},
            MEMBER_LIST: lambda request: {'members': [
                {'ID': number + 1} for number in range(self.voting)]},
        }[path](request)
        return {'header': {
            'cluster_id': self.cluster, 'member_id': self.number + 1,
            'revision': store.revision, 'raft_term': 2}, **body}

    def authenticate(self, request):
        if not self.store.users:
            raise Failing(9, 'etcdserver: authentication is not enabled')
        if self.store.users.get(request['name']) != request['password']:
            raise Failing(3, (
                'etcdserver: authentication failed, invalid user ID or'
                ' password'))
        token = f'token.{len(self.store.tokens)}'
        self.store.tokens.add(token)
        return {'token': token}

    def status(self, request):
        return {'version': self.version, 'dbSize': 20480, 'leader': 2,
                'dbSizeInUse': 16384, 'dbSizeQuota': 1 << 31}

    def alarm(self, request):
        if request.get('action') == DEACTIVATE and self.store.has_free_pages:
            self.store.full = False
        return {'alarms': [{'memberID': 1, 'alarm': 1}]
                } if self.store.full else {}

    def close(self):
        self.closed = True
        with self.store.changed:
            self.store.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.thread.join()


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
        log = EtcdLog(Settings(
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
