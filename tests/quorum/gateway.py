"""Three members of etcd as one process: what our log asks of their gateways.

All of them have the same data, and answer as etcd does: so the tests of the
log on etcd run where there is no etcd.  (What etcd really answers is seen by
the same tests in test_quorum_etcd.)  Each member can be told to answer
something else.
"""

import base64
import contextlib
import http.server
import json
import socket
import sys
import threading

from fsyncstorage.quorum.etcd.engine import EtcdLog
from fsyncstorage.quorum.etcd.lease import clock
from fsyncstorage.quorum.etcd.settings import Settings
from fsyncstorage.quorum.etcd.settings import address

from ..support import PATIENCE
from ..support import TestCase

MEMBERS = 3
CLUSTER = 77


class Failing(Exception):
    """An error of etcd: HTTP status, code, words."""


class Store:

    def __init__(self):
        self.changed = threading.Condition()
        self.values = {}
        self.revision = 1
        #: No put is taken.
        self.full = False
        self.users = {}  # passwords, by name
        self.tokens = set()

    def span(self, request):
        key = base64.b64decode(request['key'])
        end = base64.b64decode(request.get('range_end', ''))
        return sorted(
            each for each in self.values
            if (key <= each < end if end else each == key))

    def range(self, request):
        keys = self.span(request)
        limit = int(request.get('limit', 0)) or len(keys)
        found = []
        for key in keys[:limit]:
            pair = {'key': text(key), 'create_revision': '2', 'version': '1'}
            if self.values[key] and not request.get('keys_only'):
                pair['value'] = text(self.values[key])
            found.append(pair)
        return {'kvs': found, 'count': str(len(keys))} if found else {}

    def holds(self, compare):
        keys = self.span(compare)
        if compare['target'] == 'CREATE':
            return not keys
        return bool(keys) and self.values[keys[0]] == base64.b64decode(
            compare['value'])

    def txn(self, request):
        puts = 'request_put' in json.dumps(request)
        if self.full and puts:
            raise Failing(429, 8, 'etcdserver: mvcc: database space exceeded')
        succeeded = all(map(self.holds, request.get('compare', ())))
        operations = request.get('success' if succeeded else 'failure', ())
        answer = {'responses': [
            {f'response_{kind}': getattr(self, kind)(argument)}
            for each in operations
            for kind, argument in [(
                next(iter(each)).removeprefix('request_'),
                next(iter(each.values())))]]}
        if succeeded:
            answer['succeeded'] = True
        return answer

    def put(self, request):
        self.values[base64.b64decode(request['key'])] = base64.b64decode(
            request.get('value', ''))
        self.revision += 1
        return {}

    def delete_range(self, request):
        keys = self.span(request)
        for key in keys:
            del self.values[key]
        self.revision += bool(keys)
        return {'deleted': str(len(keys))} if keys else {}


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        """A client that is gone is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, address)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True
    timeout = PATIENCE

    def setup(self):
        super().setup()
        self.server.gateway.connections.add(self.connection)

    def finish(self):
        super().finish()
        self.server.gateway.connections.discard(self.connection)

    def log_message(self, *args):
        pass

    def do_POST(self):
        gateway = self.server.gateway
        request = json.loads(
            self.rfile.read(int(self.headers['Content-Length'])))
        gateway.asked.append((self.path, request))
        if gateway.instead is not None:
            if gateway.instead(self, request):
                return
        store = gateway.store
        try:
            with store.changed:
                gateway.check(self.path, self.headers.get('Authorization'))
                answer = gateway.answer(self.path, request)
                store.changed.notify_all()
        except Failing as error:
            status, code, words = error.args
            self.send(json.dumps(
                {'error': words, 'message': words, 'code': code}), status)
            return
        if self.path == '/v3/watch':
            self.watch(request['create_request'])
        else:
            self.send(json.dumps(gateway.altered(self.path, answer)))

    def send(self, text, status=200):
        raw = text.encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def begin_stream(self):
        self.send_response(200)
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()

    def send_chunk(self, message):
        raw = json.dumps(message).encode() + b'\n'
        self.wfile.write(b'%x\r\n%s\r\n' % (len(raw), raw))

    def watch(self, request):
        gateway = self.server.gateway
        store = gateway.store
        key = base64.b64decode(request['key'])
        with store.changed:
            shown = store.values.get(key)
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.begin_stream()
            self.send_chunk({'result': {'created': True}})
            while not gateway.closed:
                with store.changed:
                    store.changed.wait_for(
                        lambda: gateway.closed
                        or store.values.get(key) != shown, 1)
                    value = store.values.get(key)
                if value != shown and value is not None:
                    self.send_chunk({'result': {'events': [{'kv': {
                        'key': text(key), 'value': text(value)}}]}})
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
        if not self.store.users or path in (
                '/v3/auth/authenticate', '/v3/maintenance/status'):
            return
        if token is None:
            raise Failing(400, 3, 'etcdserver: user name is empty')
        if token not in self.store.tokens:
            raise Failing(401, 16, 'etcdserver: invalid auth token')

    def answer(self, path, request):
        store = self.store
        body = {
            '/v3/kv/range': store.range,
            '/v3/kv/txn': store.txn,
            '/v3/kv/deleterange': store.delete_range,
            '/v3/kv/compaction': lambda request: {},
            '/v3/watch': lambda request: {},
            '/v3/auth/authenticate': self.authenticate,
            '/v3/maintenance/status': self.status,
            '/v3/maintenance/alarm': self.alarm,
            '/v3/cluster/member/list': lambda request: {'members': [
                {'ID': str(number + 1)} for number in range(self.voting)]},
        }[path](request)
        return {'header': {
            'cluster_id': str(self.cluster), 'member_id': str(self.number + 1),
            'revision': str(store.revision), 'raft_term': '2'}, **body}

    def authenticate(self, request):
        if not self.store.users:
            raise Failing(400, 9, 'etcdserver: authentication is not enabled')
        if self.store.users.get(request['name']) != request['password']:
            raise Failing(400, 3, (
                'etcdserver: authentication failed, invalid user ID or'
                ' password'))
        token = f'token.{len(self.store.tokens)}'
        self.store.tokens.add(token)
        return {'token': token}

    def status(self, request):
        return {'version': self.version, 'dbSize': '20480', 'leader': '2',
                'dbSizeInUse': '16384', 'dbSizeQuota': '2147483648'}

    def alarm(self, request):
        return {'alarms': [{'memberID': '1', 'alarm': 'NOSPACE'}]
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


def text(raw):
    return base64.b64encode(raw).decode()
