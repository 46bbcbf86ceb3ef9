"""What the tests of files share: a database of blobs, requests, answers."""

import contextlib
import dataclasses
import re

import transaction
from webob import Request
from ZODB.blob import Blob
from ZODB.DB import DB

from fsyncstorage.files.response import BlobResponse

from .support import TestCase


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


@dataclasses.dataclass
class Answer:

    status: int
    headers: dict
    body: bytes

    @property
    def parts(self):
        """Of multipart/byteranges: a Content-Range and bytes, each."""
        boundary = re.fullmatch('multipart/byteranges; boundary=(.+)',
                                self.headers['Content-Type'])[1].encode()
        first, *parts, last = self.body.split(b'\r\n--' + boundary)
        assert (first, last) == (b'', b'--\r\n'), (first, last)
        for part in parts:
            head, _, content = part.partition(b'\r\n\r\n')
            yield re.search(b'Content-Range: (.+)', head)[1].decode(), content


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
