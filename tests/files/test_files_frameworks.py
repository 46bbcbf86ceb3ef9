"""Pyramid and Zope, as they are, behind the filter and without it."""

import io
import os
from unittest import mock
from wsgiref.util import FileWrapper

from pyramid.config import Configurator
from pyramid.response import FileResponse
from pyramid.response import Response
from waitress.buffers import ReadOnlyFileBasedBuffer
from webob import Request

from fsyncstorage.files.filter import Filter
from fsyncstorage.files.handover import XAccelRedirect
from fsyncstorage.files.handover import XSendfile
from fsyncstorage.files.zope import BlobIterator

from .asking import FilesTest
from .asking import ask

DATA = bytes(range(256)) * 10


class Pyramid(FilesTest):

    def setUp(self):
        super().setUp()
        self.blob = self.put(DATA)
        with Configurator() as config:
            for view in self.path_of_blob, self.opened_blob, self.other_file:
                config.add_route(view.__name__, f'/{view.__name__}')
                config.add_view(view, route_name=view.__name__)
        self.site = Filter(
            config.make_wsgi_app(),
            XAccelRedirect({'/files/': self.path('blobs')}))
        self.lease = self.storage.leaseBlob = mock.Mock(
            return_value=self.blob.committed())

    def path_of_blob(self, request):
        return FileResponse(self.blob.committed(), request)

    def opened_blob(self, request):
        wrap = request.environ['wsgi.file_wrapper']
        return Response(
            app_iter=wrap(self.blob.open()), content_length=len(DATA),
            conditional_response=True)

    def other_file(self, request):
        return FileResponse(__file__, request)

    def ask(self, view, method='GET', **headers):
        return ask(Request.blank(
            f'/{view.__name__}', {'wsgi.file_wrapper': FileWrapper},
            method=method, headers=headers), self.site)

    def assert_handed_over(self, view):
        for headers in ({}, {'Range': 'bytes=5-9'}, {'Range': 'bytes=-5'},
                        {'Range': 'bytes=5-9,0-0'}):
            answer = self.ask(view, **headers)
            self.assertEqual((answer.status, answer.body), (200, b''))
            self.assertTrue(self.blob.committed().endswith(
                answer.headers['X-Accel-Redirect'].removeprefix('/files')))

    def test_a_path(self):
        self.assert_handed_over(self.path_of_blob)
        self.lease.assert_not_called()

    def test_an_opened_blob(self):
        self.assert_handed_over(self.opened_blob)
        self.lease.assert_called()

    def test_another_file(self):
        with open(__file__, 'rb') as file:
            content = file.read()
        self.assertEqual(self.ask(self.other_file).body, content)
        answer = self.ask(self.other_file, Range='bytes=5-9')
        self.assertEqual((answer.status, answer.body), (206, content[5:10]))


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
        """But not what arrives yet."""
        blob = self.put(DATA)
        iterator = BlobIterator(blob)
        self.addCleanup(iterator.close)
        self.assertEqual(
            ReadOnlyFileBasedBuffer(iterator).prepare(), len(DATA))
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
        # Zope leaves its home in the environment, for servers to find.
        with mock.patch.dict(os.environ):
            from ZPublisher.HTTPResponse import WSGIResponse
        response = WSGIResponse(stdout=io.BytesIO())
        response.setHeader('Content-Type', 'image/png')
        response.setBody(iterator)
        status, headers = response.finalize()
        self.assertEqual(status, '200 OK')
        self.assertIn(('Content-Length', str(len(DATA))), headers)
        self.assertEqual(b''.join(response.body), DATA)
