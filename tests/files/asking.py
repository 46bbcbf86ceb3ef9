"""What the tests of files share: a database of blobs, requests, answers."""

import contextlib
import dataclasses
import socket

import transaction
import waitress
from transaction.interfaces import TransientError
from waitress import wasyncore
from webob import Request
from webob import exc
from ZODB.blob import Blob
from ZODB.DB import DB

from fsyncstorage.files.response import BlobResponse

from ..support import TestCase
from ..support import Thread

BUFFER = 1 << 16


class FilesTest(TestCase):

    def setUp(self):
        super().setUp()
        self.storage = self.open(
            blob_dir=self.path('blobs'), durability='none')
        self.db = DB(self.storage)
        self.addCleanup(self.db.close)
        self.transactions = transaction.TransactionManager()
        self.connection = self.db.open(self.transactions)
        self.addCleanup(self.transactions.abort)
        self.root = self.connection.root()

    def put(self, data, name='file'):
        """A committed blob, and its tag."""
        blob = self.root.setdefault(name, Blob())
        with blob.open('w') as file:
            file.write(data)
        self.transactions.commit()
        return blob

    def get(self, blob, method='GET', headers=(), environ=(), **options):
        request = Request.blank(
            '/', method=method, headers=dict(headers), environ=dict(environ))
        return ask(request, BlobResponse(request, blob, **options))


class Application:
    """Serves the blobs at the root of a database by their names."""

    def __init__(self, db, **options):
        self._db = db
        self._options = options

    def __call__(self, environ, start_response):
        request = Request(environ)
        try:
            with self._db.transaction() as connection:
                answer = BlobResponse(
                    request, connection.root()[request.path_info[1:]],
                    **self._options)
        except TransientError:
            answer = exc.HTTPServiceUnavailable()
        return answer(environ, start_response)


class Waitress:
    """An application under waitress, in threads, until the test ends.

    Its buffers are small: who does not read holds up who sends.
    """

    def __init__(self, test, application):
        listener = socket.create_server(('127.0.0.1', 0))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self.address = listener.getsockname()
        self._channels = {}
        self._server = waitress.create_server(
            application, sockets=[listener], map=self._channels, threads=2,
            outbuf_high_watermark=BUFFER)
        self._thread = Thread(self._server.run)
        test.addCleanup(self._stop)

    def _stop(self):
        with contextlib.suppress(OSError):  # its thread may be first to close
            self._server.trigger.pull_trigger(
                lambda: wasyncore.close_all(self._channels))
        self._thread.result()
        self._server.task_dispatcher.shutdown()

    @property
    def connections(self):
        return len(self._server.active_channels)

    @property
    def busy(self):
        """How many of its threads are."""
        return self._server.task_dispatcher.active_count


@dataclasses.dataclass
class Answer:

    status: int
    headers: dict
    body: bytes


def ask(request, application):
    """Send it as a server would: read all, and close what can be."""
    said = []
    body = application(request.environ, lambda *args: said.append(args))
    with contextlib.ExitStack() as stack:
        if hasattr(body, 'close'):
            stack.callback(body.close)
        content = b''.join(body)
    [(status, headers, *_)] = said
    return Answer(int(status[:3]), dict(headers), content)
