"""The application: what it serves, and what it refuses."""

import io
import os
import sys
import types
from unittest import mock

from BTrees.OOBTree import OOBTree
from waitress.buffers import ReadOnlyFileBasedBuffer
from webob import Request
from webob import exc
from ZEO.Exceptions import ClientDisconnected
from ZODB.blob import Blob
from ZODB.POSException import POSKeyError

from fsyncstorage.client.blobs.blobcache import DownloadFailed
from fsyncstorage.files.application import Application
from fsyncstorage.files.application import File
from fsyncstorage.files.application import make_application
from fsyncstorage.files.application import traverse
from fsyncstorage.files.filter import Filter
from fsyncstorage.files.handover import XSendfile
from fsyncstorage.files.zope import BlobIterator

from .asking import FilesTest
from .asking import ask

DATA = b'content' * 100


def zope_response(**options):
    # Zope leaves its home in the environment, for servers to find.
    with mock.patch.dict(os.environ):
        from ZPublisher.HTTPResponse import WSGIResponse
    return WSGIResponse(**options)


class Served(FilesTest):

    def setUp(self):
        super().setUp()
        self.root['files'] = OOBTree(
            {'a.png': Blob(DATA), 'text': 'no blob', 'deeper': OOBTree()})
        self.root['files']['deeper']['\xfc'] = Blob(DATA)
        self.root['numbers'] = OOBTree({1: Blob(DATA)})
        self.transactions.commit()

    def ask(self, path, method='GET', headers=(), **options):
        return ask(Request.blank(path, method=method, headers=dict(headers)),
                   Application(self.db, **options))

    def refused(self, status, path, *args, **options):
        answer = self.ask(path, *args, **options)
        self.assertEqual(answer.status, status, path)
        self.assertNotIn(DATA, answer.body)

    def test_a_path(self):
        answer = self.ask('/files/a.png')
        self.assertEqual((answer.status, answer.body), (200, DATA))
        self.assertEqual(answer.headers['Content-Disposition'],
                         'inline; filename="a.png"')
        self.assertEqual(self.ask('/files/deeper/%C3%BC').body, DATA)
        self.assertEqual(self.ask('/files/a.png', 'HEAD').status, 200)

    def test_what_is_not_there(self):
        for path in ('/', '/files', '/files/', '/files/x', '/files/text',
                     '/files/text/a.png', '/files/a.png/b', '/../files/a.png',
                     '/files/../files/a.png', '//files/x', '/files/%00',
                     '/numbers/1', '/files/deeper/%2E%2E/a.png'):
            self.refused(404, path)

    def test_nothing_is_looked_up_but_in_mappings(self):
        class Other:

            def __getitem__(self, name):
                return DATA

        with self.assertRaises(KeyError):
            traverse(Other(), ['a'])

    def test_bad_requests(self):
        self.refused(400, '/files/%FF')
        for method in 'POST', 'PUT', 'DELETE', 'OPTIONS':
            self.refused(405, '/files/a.png', method)

    def test_no_connection_is_kept(self):
        for path in '/files/a.png', '/files/x':
            self.ask(path)
        opened = [each for each in self.db.connectionDebugInfo()
                  if each['opened']]
        self.assertEqual(len(opened), 1)  # that of the test

    # The hooks

    def find(self, root, names):
        if names != ['picture']:
            raise KeyError(names)
        return File(root['files']['a.png'], 'b.jpg', 'image/png')

    def test_another_find_is_closed(self):
        self.refused(403, '/picture', find=self.find)
        self.refused(403, '/other', find=self.find)

    def test_another_find_that_is_published(self):
        asked = []

        def publish(request, names):
            asked.append((request.method, names))
            return True

        answer = self.ask('/picture', find=self.find, publish=publish)
        self.assertEqual(answer.body, DATA)
        self.assertEqual(answer.headers['Content-Type'], 'image/png')
        self.assertEqual(answer.headers['Content-Disposition'],
                         'inline; filename="b.jpg"')
        self.assertEqual(asked, [('GET', ['picture'])])
        self.refused(404, '/other', find=self.find, publish=publish)

    def test_shared_caches_keep_only_what_is_public(self):
        found = self.ask('/files/a.png')
        self.assertNotIn('Cache-Control', found.headers)
        for path, headers, status in (
                ('/files/a.png', {}, 200), ('/files/x', {}, 404),
                ('/files/a.png', {'If-None-Match': found.headers['ETag']},
                 304)):
            answer = self.ask(path, headers=headers, publish=lambda *args: 1)
            self.assertEqual(answer.status, status)
            self.assertEqual(answer.headers['Cache-Control'], 'private')

    def test_publish_knows_better_what_they_may_keep(self):
        publish = mock.Mock(side_effect=exc.HTTPNotFound(
            headers=[('Cache-Control', 'no-store')]))
        answer = self.ask('/files/a.png', publish=publish)
        self.assertEqual(answer.headers['Cache-Control'], 'no-store')

    def test_publish_says_no(self):
        self.refused(403, '/files/a.png', publish=lambda *args: None)
        self.refused(401, '/files/a.png', publish=mock.Mock(
            side_effect=exc.HTTPUnauthorized))

    # What goes wrong

    def test_a_blob_that_was_packed_away(self):
        os.remove(self.root['files']['a.png'].committed())
        self.refused(404, '/files/a.png')

    def test_an_object_that_was_packed_away(self):
        with mock.patch.object(self.storage, 'loadBlob',
                               side_effect=POSKeyError(b'\0' * 8)):
            self.refused(404, '/files/a.png')

    def test_a_server_that_is_gone(self):
        for error in ClientDisconnected, DownloadFailed:
            with mock.patch.object(
                    self.storage, 'loadBlob', side_effect=error):
                self.refused(503, '/files/a.png')

    def test_a_file_that_is_removed_in_between(self):
        with mock.patch('fsyncstorage.files.application.BlobResponse',
                        side_effect=FileNotFoundError):
            self.refused(404, '/files/a.png')

    # Paste

    def test_of_paste(self):
        with open(self.path('zodb.conf'), 'w') as file:
            file.write(f'''
                %import fsyncstorage
                <zodb>
                  <fsyncstorage>
                    path {self.path('Paste.fs')}
                    blob-dir {self.path('paste')}
                  </fsyncstorage>
                </zodb>''')
        hooks = types.SimpleNamespace(
            find=self.find, publish=lambda *args: True)
        with mock.patch.dict(sys.modules, hooks=hooks), mock.patch(
                'atexit.register', lambda close: self.addCleanup(close)):
            application = make_application(
                {}, self.path('zodb.conf'), 'hooks:find', 'hooks:publish',
                x_sendfile=self.path('paste'))
        with application._db.transaction() as connection:
            connection.root()['files'] = {'a.png': Blob(DATA)}
        answer = ask(Request.blank('/picture'), application)
        self.assertIn('X-Sendfile', answer.headers)


class Zope(FilesTest):

    def test_it_is_sent_without_a_connection(self):
        iterator = BlobIterator(self.put(DATA))
        self.transactions.abort()
        self.connection.close()
        self.assertEqual(len(iterator), len(DATA))
        self.assertEqual(iterator.read(7), DATA[:7])
        self.assertEqual(b''.join(iterator), DATA[7:])
        iterator.close()

    def test_waitress_sends_it_without_a_thread(self):
        iterator = BlobIterator(self.put(DATA))
        self.addCleanup(iterator.close)
        self.assertEqual(
            ReadOnlyFileBasedBuffer(iterator).prepare(), len(DATA))

    def test_but_not_what_arrives_yet(self):
        blob = self.put(DATA)
        arriving = mock.Mock(wraps=open(blob.committed(), 'rb'))
        arriving.fileno.side_effect = OSError
        self.storage.openArriving = lambda oid, serial: arriving
        iterator = BlobIterator(blob)
        self.addCleanup(iterator.close)
        self.assertEqual(ReadOnlyFileBasedBuffer(iterator).prepare(), 0)
        self.assertEqual(b''.join(iterator), DATA)

    def test_the_filter_hands_it_over(self):
        blob = self.put(DATA)

        def application(environ, start_response):
            start_response('200 OK', [('Content-Length', str(len(DATA)))])
            return environ['wsgi.file_wrapper'](BlobIterator(blob))

        answer = ask(Request.blank('/'), Filter(
            application, XSendfile([self.path('blobs')])))
        self.assertEqual(answer.headers['X-Sendfile'], blob.committed())

    def test_what_the_publisher_makes_of_it(self):
        iterator = BlobIterator(self.put(DATA))
        self.addCleanup(iterator.close)
        response = zope_response(stdout=io.BytesIO())
        response.setHeader('Content-Type', 'image/png')
        response.setBody(iterator)
        status, headers = response.finalize()
        self.assertEqual(status, '200 OK')
        self.assertIn(('Content-Length', str(len(DATA))), headers)
        self.assertEqual(b''.join(response.body), DATA)
