"""All of it together: over ZEO, under waitress, and the example site."""

import contextlib
import http.client
import importlib.util
import pathlib

from webob import Request
from ZODB.blob import Blob
from ZODB.DB import DB

from fsyncstorage.files.handover import XSendfile

from ..client.connected import ConnectedTestCase
from ..support import PATIENCE
from ..support import until
from .asking import Answer
from .asking import Application
from .asking import FilesTest
from .asking import Waitress
from .asking import ask

SERVE = (pathlib.Path(__file__).parents[1].with_name('examples')
         / 'files' / 'serve.py')
# More than one piece, on each way that it may go.
DATA = bytes(range(256)) * 4096


class OverZEO(ConnectedTestCase):

    def test_sent_while_it_arrives_and_handed_over_then(self):
        db = DB(self.connect(
            blob_dir=self.path('cache'), blob_cache_fill='load'))
        self.addCleanup(db.close)
        with db.transaction() as connection:
            connection.root()['a.png'] = Blob(DATA)
        application = Application(
            db, hand_over=XSendfile([self.path('cache')]))
        request = Request.blank('/a.png')
        first = ask(request, application)
        self.assertEqual((first.status, first.body), (200, DATA))
        self.assertEqual(first.headers['Content-Length'], str(len(DATA)))
        cache = pathlib.Path(self.path('cache'))
        until(lambda: list(cache.glob('*/*.blob')), 'it is in the cache')
        then = ask(request, application)
        self.assertEqual(then.body, b'')
        with open(then.headers['X-Sendfile'], 'rb') as file:
            self.assertEqual(file.read(), DATA)


class UnderWaitress(FilesTest):

    def setUp(self):
        super().setUp()
        self.put(DATA, 'a.png')
        self.server = Waitress(self, Application(self.db))

    def ask(self, connection, method='GET', **headers):
        connection.request(method, '/a.png', headers=headers)
        response = connection.getresponse()
        return Answer(response.status, dict(response.headers),
                      response.read())

    def test_one_connection(self):
        """Each answer ends where it should, or the next could not be read."""
        connection = http.client.HTTPConnection(
            *self.server.address, timeout=PATIENCE)
        with contextlib.closing(connection):
            self.assertEqual(self.ask(connection).body, DATA)
            self.assertEqual(
                self.ask(connection, Range='bytes=5-9').body, DATA[5:10])
            self.assertEqual(
                self.ask(connection, Range='bytes=-9').body, DATA[-9:])
            self.assertEqual(
                self.ask(connection, Range='bytes=5-9,0-1').body, DATA)
            self.assertEqual(self.ask(connection, 'HEAD').body, b'')
            self.assertEqual(
                self.ask(connection, Range='bytes=-0').status, 416)
            self.assertEqual(self.ask(connection).body, DATA)


class Example(FilesTest):

    def setUp(self):
        super().setUp()
        spec = importlib.util.spec_from_file_location('serve', SERVE)
        serve = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(serve)
        self.site = serve.Site(self.db)

    def ask(self, *args, **options):
        return ask(Request.blank(*args, **options), self.site)

    def test_upload_list_download(self):
        for name, address in (('a<b>.png', 'a%3Cb%3E.png'),
                              ('a/\xfc.png', 'a%2F%C3%BC.png')):
            answer = self.ask('/', POST={'file': (name, DATA)})
            self.assertEqual(answer.status, 303)
            page = self.ask('/').body.decode()
            self.assertIn(f'"/files/{address}"', page)
            self.assertNotIn('<b>', page)
            self.assertEqual(self.ask(f'/files/{address}').body, DATA)

    def test_what_is_not_there(self):
        for path in '/files/', '/files/x', '/files/x/y', '/x':
            self.assertEqual(self.ask(path).status, 404)
        self.assertEqual(self.ask('/', POST={'file': 'none'}).status, 400)
