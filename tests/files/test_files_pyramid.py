"""Pyramid behind the filter, as it is."""

from unittest import mock
from wsgiref.util import FileWrapper

from pyramid.config import Configurator
from pyramid.response import FileResponse
from pyramid.response import Response
from webob import Request

from fsyncstorage.files.filter import Filter
from fsyncstorage.files.handover import XAccelRedirect

from .asking import FilesTest
from .asking import ask

DATA = bytes(range(256)) * 10


class Views(FilesTest):

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

    def test_head(self):
        for view in self.path_of_blob, self.opened_blob:
            answer = self.ask(view, 'HEAD')
            self.assertEqual((answer.status, answer.body), (200, b''))
            self.assertEqual(
                answer.headers['Content-Length'], str(len(DATA)))
            self.assertNotIn('X-Accel-Redirect', answer.headers)

    def test_what_has_not_changed(self):
        headers = self.ask(self.path_of_blob).headers
        answer = self.ask(self.path_of_blob, **{
            'If-Modified-Since': headers['Last-Modified']})
        self.assertEqual(answer.status, 304)

    def test_another_file(self):
        with open(__file__, 'rb') as file:
            content = file.read()
        self.assertEqual(self.ask(self.other_file).body, content)
        answer = self.ask(self.other_file, Range='bytes=5-9')
        self.assertEqual((answer.status, answer.body), (206, content[5:10]))
