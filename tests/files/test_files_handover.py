"""The front server sends: what it is told, and what a real nginx makes of it.
"""

import contextlib
import http.client
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import unittest
from unittest import mock
from wsgiref.simple_server import WSGIRequestHandler
from wsgiref.simple_server import make_server

from webob import Request
from webob import Response
from ZODB.POSException import POSKeyError

from fsyncstorage.files import handover
from fsyncstorage.files.filter import Filter
from fsyncstorage.files.filter import make_filter
from fsyncstorage.files.handover import SHARED
from fsyncstorage.files.handover import XAccelRedirect
from fsyncstorage.files.handover import XSendfile
from fsyncstorage.files.handover import configured
from fsyncstorage.files.response import BlobResponse
from fsyncstorage.files.source import LEASE
from fsyncstorage.files.source import Source

from ..support import PATIENCE
from ..support import until
from .asking import Answer
from .asking import FilesTest
from .asking import ask

NGINX = (pathlib.Path(__file__).parents[1].with_name('examples')
         / 'nginx' / 'blobs.conf')
DATA = bytes(range(256)) * 10
SIZE = len(DATA)


class Headers(FilesTest):

    def setUp(self):
        super().setUp()
        self.blob = self.put(DATA)
        self.hand_over = XAccelRedirect({'/files/': self.path('blobs')})

    def told(self, hand_over, **options):
        return self.get(self.blob, hand_over=hand_over, **options).headers

    def streams(self, **options):
        answer = self.get(self.blob, hand_over=self.hand_over, **options)
        self.assertNotIn('X-Accel-Redirect', answer.headers)
        return answer

    def test_of_all_that_is_there(self):
        path = self.blob.committed()
        relative = os.path.relpath(path, self.path('blobs'))
        headers = self.get(self.blob, filename='a.png').headers
        answer = self.get(
            self.blob, hand_over=self.hand_over, filename='a.png')
        self.assertEqual((answer.status, answer.body), (200, b''))
        self.assertEqual(answer.headers, {
            **headers, 'Content-Length': '0',
            'X-Accel-Redirect': f'/files/{relative}'})
        self.assertEqual(
            self.told(XSendfile([self.path('blobs')]))['X-Sendfile'], path)
        self.assertNotIn('X-Sendfile', self.told(XSendfile([self.path('b')])))

    def test_paths_are_encoded(self):
        self.assertEqual(
            XSendfile(['/a b']).header('/a b/c?d%e\xe9'),
            ('X-Sendfile', '/a%20b/c%3Fd%25e%C3%A9'))
        self.assertEqual(
            XAccelRedirect({'/x': '/a b/'}).header('/a b/c?d'),
            ('X-Accel-Redirect', '/x/c%3Fd'))

    def test_links(self):
        """The front server is told what it knows the directory by."""
        os.symlink(self.path('blobs'), self.path('link'))
        path = self.blob.committed()
        linked = path.replace(self.path('blobs'), self.path('link'))
        for directory, expected in ('blobs', path), ('link', linked):
            hand_over = XSendfile([self.path(directory)])
            for each in path, linked:
                self.assertEqual(
                    hand_over.header(each), ('X-Sendfile', expected))

        os.makedirs(self.path('inner'))
        os.symlink(self.path('elsewhere'), self.path('inner/link'))
        self.assertEqual(
            XSendfile([self.path('inner')]).header(self.path('inner/link/a')),
            ('X-Sendfile', self.path('inner/link/a')))

    def test_what_the_front_server_cannot_judge(self):
        tag = Source(self.blob).tag
        for name, value in (('If-Match', tag), ('X-Blob-Missed', '1'),
                            ('If-Unmodified-Since',
                             self.get(self.blob).headers['Last-Modified'])):
            answer = self.streams(headers={name: value})
            self.assertEqual((answer.status, answer.body), (200, DATA))
        self.streams(method='HEAD')

        self.assertEqual(self.get(
            self.blob, hand_over=self.hand_over,
            headers={'If-None-Match': tag}).status, 304)

    def test_a_lease_is_shared_for_a_while(self):
        lease = mock.Mock(return_value=self.blob.committed())
        with (mock.patch.object(handover, 'time') as time,
              mock.patch.object(self.storage, 'leaseBlob', lease)):
            time.monotonic.return_value = now = 100
            hand_over = XSendfile([self.path('blobs')])
            for seconds, leases in (
                    (0, 1), (SHARED, 1), (SHARED + 1, 2), (SHARED + 1, 2)):
                time.monotonic.return_value = now + seconds
                self.told(hand_over)
                self.assertEqual(lease.call_count, leases)
            lease.assert_called_with(
                self.blob._p_oid, self.blob._p_serial, LEASE)
            # Each file has its own.
            self.blob = self.put(b'another')
            lease.return_value = self.blob.committed()
            self.assertEqual(
                self.told(hand_over)['X-Sendfile'], self.blob.committed())

    def test_a_file_that_is_gone_is_not_handed_over(self):
        """Within the time that the lease is shared."""
        self.told(self.hand_over)
        path = self.blob.committed()
        os.rename(path, self.path('gone'))
        with self.assertRaises(POSKeyError):
            self.streams()
        os.rename(self.path('gone'), path)
        self.assertIn('X-Accel-Redirect', self.told(self.hand_over))

    def test_what_arrives_yet_is_streamed(self):
        arriving = mock.Mock(wraps=open(self.blob.committed(), 'rb'))
        arriving.fileno.side_effect = OSError
        self.storage.leaseBlob = lambda *args: None
        self.storage.openArriving = lambda oid, serial: arriving
        wrapper = mock.Mock()
        answer = self.streams(environ={'wsgi.file_wrapper': wrapper})
        self.assertEqual(answer.body, DATA)
        arriving.close.assert_called_once_with()
        wrapper.assert_not_called()
        # What is not here is asked for again.
        del self.storage.leaseBlob
        self.assertIn('X-Accel-Redirect', self.told(self.hand_over))

    def test_configured(self):
        self.assertIsNone(configured())
        found = configured(x_accel_redirect='\n/a/ /b c\n /d/  /e/\n')
        self.assertEqual(found.header('/b c/f'), ('X-Accel-Redirect', '/a/f'))
        self.assertEqual(found.header('/e/f'), ('X-Accel-Redirect', '/d/f'))
        found = configured(x_sendfile='\n/a\n/b\n')
        self.assertEqual(found.header('/b/c'), ('X-Sendfile', '/b/c'))
        for wrong in '/a', 'a /b':
            with self.assertRaisesRegex(ValueError, 'x_accel_redirect'):
                configured(x_accel_redirect=wrong)


class Filtered(FilesTest):
    """An application that knows nothing of it."""

    def setUp(self):
        super().setUp()
        self.blob = self.put(DATA)
        self.path_of_blob = self.blob.committed()
        self.hand_over = XSendfile([self.path('blobs')])
        self.headers = [('Content-Type', 'x/y'), ('ETag', '"1"'),
                        ('Content-Length', str(SIZE))]
        self.status = '200 OK'
        self.skip = 0
        self.open = lambda: open(self.path_of_blob, 'rb')

    def application(self, environ, start_response):
        self.file = self.open()
        self.file.seek(self.skip)
        start_response(self.status, self.headers)
        return environ['wsgi.file_wrapper'](self.file, 8192)

    def filtered(self, application=None, headers=(), **environ):
        request = Request.blank('/', headers=dict(headers), environ=environ)
        return ask(request, Filter(
            application or self.application, self.hand_over))

    def handed_over(self, **options):
        answer = self.filtered(**options)
        self.assertEqual((answer.status, answer.body), (200, b''))
        self.assertEqual(answer.headers, {
            'Content-Type': 'x/y', 'ETag': '"1"', 'Content-Length': '0',
            'X-Sendfile': self.path_of_blob})
        self.assertTrue(self.file.closed)

    def streamed(self, **options):
        answer = self.filtered(**options)
        self.assertNotIn('X-Sendfile', answer.headers)
        self.assertTrue(self.file.closed)
        return answer

    def test_a_path(self):
        self.handed_over()

    def test_a_blob_file(self):
        lease = self.storage.leaseBlob = mock.Mock(
            return_value=self.path_of_blob)
        self.open = self.blob.open
        self.handed_over()
        lease.assert_called_once()

    def test_a_part(self):
        self.status, self.skip = '206 Partial Content', 5
        self.headers[-1:] = [
            ('Content-Length', '5'), ('Content-Range', f'bytes 5-9/{SIZE}')]
        self.handed_over(headers={'Range': 'bytes=5-9'})
        self.streamed()

    def test_a_file_that_plone_namedfile_returns(self):
        class filestream_range_iterator:

            def __init__(self, file):
                self._io = file
                self.read = file.read
                self.close = file.close

        class Other(filestream_range_iterator):
            """It could be anything."""

        def application(environ, start_response):
            self.file = self.open()
            self.file.seek(self.skip)
            start_response(self.status, self.headers)
            return environ['wsgi.file_wrapper'](kind(self.file))

        kind = filestream_range_iterator
        self.handed_over(application=application)
        kind = Other
        self.assertEqual(self.streamed(application=application).body, DATA)
        kind = filestream_range_iterator
        self.skip = 5
        self.streamed(application=application)
        self.status = '206 Partial Content'
        self.handed_over(
            application=application, headers={'Range': 'bytes=5-'})

    def test_what_is_missed_is_streamed(self):
        self.open = self.blob.open
        answer = self.streamed(
            headers={'X-Blob-Missed': '1'},
            **{'wsgi.file_wrapper': lambda file, size: file})
        self.assertEqual(answer.body, DATA)

    def test_other_files(self):
        for name in 'other.blob', 'blobs/tmp/other':
            other = self.path(name)
            shutil.copy(self.path_of_blob, other)
            self.open = lambda: open(other, 'rb')
            self.assertEqual(self.streamed().body, DATA)

    def test_a_blob_that_is_another_by_now(self):
        self.storage.leaseBlob = mock.Mock(
            return_value=self.path('blobs/newer.blob'))
        self.open = self.blob.open
        self.assertEqual(self.streamed().body, DATA)

    def test_a_blob_that_is_not_committed(self):
        with self.blob.open('w') as file:
            file.write(b'x' * SIZE)
        self.open = self.blob.open
        self.assertEqual(self.streamed().body, b'x' * SIZE)

    def test_what_would_be_sent_otherwise(self):
        for status, skip, header in (
                ('404 Not Found', 0, ('X', 'y')),
                ('200 OK', 5, ('X', 'y')),
                ('200 OK', 0, ('Content-Encoding', 'gzip')),
                ('200 OK', 0, ('Content-Length', '5'))):
            self.status, self.skip = status, skip
            self.headers[2:] = [header]
            self.assertEqual(self.streamed().body, DATA[skip:])

    def test_the_servers_own_wrapper(self):
        wrapper = mock.Mock(return_value=[b'ours'])
        self.status = '404 Not Found'
        answer = self.filtered(**{'wsgi.file_wrapper': wrapper})
        self.assertEqual((answer.status, answer.body), (404, b'ours'))
        wrapper.assert_called_once_with(self.file, 8192)
        self.file.close()

    def test_everything_else(self):
        answer = self.filtered(Response(b'other', content_length=None))
        self.assertEqual((answer.status, answer.body), (200, b'other'))

        def late(environ, start_response):
            start_response('204 No Content', [])
            yield b''

        self.assertEqual(self.filtered(late).status, 204)

    def test_a_file_that_gets_no_lease_is_sent_as_it_is(self):
        for error in ConnectionError, POSKeyError:
            self.open = self.blob.open
            self.storage.leaseBlob = mock.Mock(side_effect=error(b''))
            answer = self.filtered()
            self.assertEqual((answer.status, answer.body), (200, DATA))
            self.assertNotIn('X-Accel-Redirect', answer.headers)

    def test_an_error_on_the_way(self):
        self.open = self.blob.open
        self.storage.leaseBlob = mock.Mock(side_effect=ValueError)
        with self.assertRaises(ValueError):
            self.filtered()
        self.assertTrue(self.file.closed)

    def test_of_paste(self):
        self.assertIs(make_filter(ask, {}), ask)
        filter_ = make_filter(
            self.application, {}, x_sendfile=self.path('blobs'))
        self.assertIn('X-Sendfile', ask(Request.blank('/'), filter_).headers)
        with self.assertRaisesRegex(TypeError, 'x_sendfiles'):
            make_filter(ask, {}, x_sendfiles='/')


class Quiet(WSGIRequestHandler):

    def log_message(self, *args):
        pass


@unittest.skipUnless(shutil.which('nginx'), 'nginx is not installed')
class Nginx(FilesTest):
    """The configuration in examples/, with a real nginx."""

    def setUp(self):
        super().setUp()
        self.blob = self.put(DATA)
        self.streamed = []  # by the application
        self.socket = self.path('socket')
        self.serve()

    def application(self, environ, start_response):
        response = BlobResponse(
            Request(environ), self.blob, filename='\xfc.png',
            hand_over=XAccelRedirect({'/blob-files/': self.path('blobs')}))
        response.cache_control = 'private'
        if 'X-Accel-Redirect' not in response.headers:
            self.streamed.append(response.status_code)
        return response(environ, start_response)

    def serve(self):
        server = make_server(
            '127.0.0.1', 0, self.application, handler_class=Quiet)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        self.start_nginx(NGINX.read_text()
                         .replace('127.0.0.1:8080',
                                  f'127.0.0.1:{server.server_port}')
                         .replace('127.0.0.1:8081', f'unix:{self.socket}')
                         .replace('/srv/site/var/blobcache',
                                  self.path('blobs')))

    def start_nginx(self, site):
        with open(self.path('site.conf'), 'w') as file:
            file.write(site)
        with open(self.path('nginx.conf'), 'w') as file:
            file.write('daemon off; master_process off; pid nginx.pid;'
                       'events {} http { access_log off;' + ''.join(
                           f'{kind}_temp_path {kind};' for kind in (
                               'client_body', 'proxy', 'fastcgi', 'uwsgi',
                               'scgi')) + 'include site.conf; }')
        with open(self.path('nginx.log'), 'w') as log:
            process = subprocess.Popen(
                [shutil.which('nginx'), '-p', self.directory, '-e', 'stderr',
                 '-c', 'nginx.conf'], stderr=log)
        self.addCleanup(process.wait, PATIENCE)
        self.addCleanup(process.terminate)
        until(lambda: process.poll() is not None or answers(self.socket),
              'nginx answers')
        with open(self.path('nginx.log')) as log:
            self.assertIsNone(process.poll(), log.read())

    def ask(self, method='GET', path='/a?b', **headers):
        connection = http.client.HTTPConnection('nginx')
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(PATIENCE)
        with contextlib.closing(connection):
            connection.sock.connect(self.socket)
            connection.request(method, path, headers={
                name.replace('_', '-'): value
                for name, value in headers.items()})
            response = connection.getresponse()
            return Answer(
                response.status, dict(response.headers), response.read())

    def sends(self, status, body, **headers):
        """nginx does, and as the application would."""
        ours = self.get(self.blob, headers={
            name.replace('_', '-'): value for name, value in headers.items()},
            filename='\xfc.png')
        answer = self.ask(**headers)
        self.assertEqual((answer.status, answer.body), (status, body))
        self.assertEqual(self.streamed, [])
        for name in ('ETag', 'Last-Modified', 'Content-Type', 'Accept-Ranges',
                     'Content-Length', 'Content-Range', 'Content-Disposition',
                     'X-Content-Type-Options'):
            if status != 416 or name == 'Content-Range':
                self.assertEqual(answer.headers.get(name),
                                 ours.headers.get(name), name)

    def test_it_sends_the_file(self):
        self.sends(200, DATA)
        self.assertEqual(self.ask().headers['Cache-Control'], 'private')

    def test_it_sends_ranges(self):
        self.sends(206, DATA[5:10], Range='bytes=5-9')
        self.sends(206, DATA[-5:], Range='bytes=-5')
        self.sends(416, mock.ANY, Range=f'bytes={SIZE}-')
        self.sends(200, DATA, Range='bytes=' + '1-1,' * 16 + '2-2')
        answer = self.ask(Range='bytes=5-9,0-0')
        self.assertEqual(answer.status, 206)
        self.assertIn(b'bytes 5-9/%d\r\n\r\n' % SIZE + DATA[5:10],
                      answer.body)

    def test_a_date_for_if_range(self):
        """Two blobs may have it: a part of one is no part of the other."""
        for date in (self.ask().headers['Last-Modified'],
                     'Sun, 06 Nov 1994 08:49:37 GMT'):
            answer = self.ask(Range='bytes=0-0', If_Range=date)
            self.assertEqual((answer.status, answer.body), (200, DATA))

    def test_conditions(self):
        headers = self.ask().headers
        tag, modified = headers['ETag'], headers['Last-Modified']
        for condition, status in (
                ({'If_None_Match': tag}, 304), ({'If_None_Match': '"x"'}, 200),
                ({'If_Modified_Since': modified}, 304),
                ({'If_None_Match': '"x"', 'If_Modified_Since': modified}, 200),
                ({'If_Match': tag}, 200), ({'If_Match': '"x"'}, 412),
                ({'If_Unmodified_Since': modified}, 200)):
            # The time of the file says nothing.
            path = self.blob.committed()
            for time in 0, 2**31:
                os.utime(path, (time, time))
                self.assertEqual(
                    self.ask(**condition).status, status, condition)

    def test_a_file_that_is_gone(self):
        gone = os.path.join(self.path('blobs'), 'gone')
        with mock.patch.object(Source, 'lease', lambda source: gone):
            answer = self.ask(Range='bytes=5-9')
        self.assertEqual((answer.status, answer.body), (206, DATA[5:10]))
        self.assertEqual(self.streamed, [206])

    def test_a_file_that_cannot_be_read(self):
        directory = self.path('blobs')
        with mock.patch.object(
                Source, 'lease', lambda source: f'{directory}/'):
            answer = self.ask()
        self.assertEqual((answer.status, answer.body), (200, DATA))
        self.assertEqual(self.streamed, [200])

    def test_nobody_else_can_say_that_it_was_missed(self):
        self.ask(X_Blob_Missed='1')
        self.assertEqual(self.streamed, [])

    def test_nobody_else_gets_at_the_files(self):
        path = os.path.relpath(self.blob.committed(), self.path('blobs'))
        with mock.patch(f'{__name__}.BlobResponse', return_value=Response(
                status=404)):
            self.assertNotEqual(
                self.ask(path=f'/blob-files/{path}').body, DATA)


def answers(path):
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0
