"""The response for a blob: what is sent, and what is left behind: nothing."""

import contextlib
import os
import unittest
from unittest import mock
from wsgiref.util import FileWrapper

from webob import Request
from ZODB.blob import Blob
from ZODB.interfaces import BlobError
from ZODB.POSException import POSKeyError

from fsyncstorage.files import source
from fsyncstorage.files.response import BlobResponse
from fsyncstorage.files.response import checked_type
from fsyncstorage.files.response import content_disposition
from fsyncstorage.files.source import Source

from .asking import FilesTest
from .asking import ask

DATA = bytes(range(256)) * 10
SIZE = len(DATA)


def open_files():
    return set(os.listdir('/dev/fd'))


class Described(unittest.TestCase):

    def test_type(self):
        for given, filename, expected in (
                (None, 'a.png', 'image/png'),
                (None, 'a.tar.gz', 'application/octet-stream'),
                (None, 'a.no-such-type', 'application/octet-stream'),
                (None, None, 'application/octet-stream'),
                ('image/webp', 'a.png', 'image/webp'),
                ('text/plain; charset=utf-8', None,
                 'text/plain; charset=utf-8'),
                ('text/plain\r\nX: y', 'a.png', 'application/octet-stream'),
                ('text/plain; \xe9', None, 'application/octet-stream'),
                # Of a list, a browser takes the last one.
                ('text/plain;,text/html', None, 'application/octet-stream'),
                ('nonsense', 'a.png', 'application/octet-stream')):
            self.assertEqual(checked_type(given, filename), expected)

    def test_what_could_be_run_is_saved(self):
        for type_ in ('text/html', 'image/svg+xml', 'text/xml', 'TEXT/HTML',
                      'application/xhtml+xml', 'text/javascript', 'text/css',
                      'application/octet-stream', 'text/plainer',
                      'image/x+xml', 'video/x+xml',
                      'multipart/x-mixed-replace; boundary=image/png'):
            self.assertEqual(content_disposition(None, type_), 'attachment')
        for type_ in ('image/png', 'audio/ogg', 'video/webm', 'Image/PNG',
                      'application/pdf', 'text/plain; charset=utf-8'):
            self.assertEqual(content_disposition(None, type_), 'inline')
            self.assertEqual(
                content_disposition(None, type_, attachment=True),
                'attachment')

    def test_names(self):
        for name, parameters in (
                ('a b;c.txt', '; filename="a b;c.txt"'),
                ('a"b\\c/d%e\r\nf', '; filename="a_b_c_d_e__f"; filename*='
                 "UTF-8''a%22b%5Cc%2Fd%25e%0D%0Af"),
                ('\xfcber.txt', '; filename="_ber.txt"; filename*='
                 "UTF-8''%C3%BCber.txt"),
                ('\ud800', '; filename="_"; filename*=UTF-8\'\'%3F'),
                ('', '')):
            self.assertEqual(content_disposition(name, 'image/png'),
                             'inline' + parameters)


class Sent(FilesTest):

    def setUp(self):
        super().setUp()
        self.blob = self.put(DATA)
        self.tag = Source(self.blob).tag
        before = open_files()
        self.addCleanup(
            lambda: self.assertLessEqual(open_files(), before))

    def test_all_of_it(self):
        answer = self.get(self.blob, filename='a.png')
        self.assertEqual((answer.status, answer.body), (200, DATA))
        self.assertEqual(answer.headers, {
            'Content-Length': str(SIZE),
            'Content-Type': 'image/png',
            'Content-Disposition': 'inline; filename="a.png"',
            'X-Content-Type-Options': 'nosniff',
            'Accept-Ranges': 'bytes',
            'ETag': self.tag,
            'Last-Modified': answer.headers['Last-Modified']})

    def test_head_is_the_same_without_a_body(self):
        answer = self.get(self.blob, 'HEAD', headers={'Range': 'bytes=1-2'})
        self.assertEqual((answer.status, answer.body), (200, b''))
        self.assertEqual(answer.headers, self.get(self.blob).headers)

    def test_the_tag_names_the_transaction(self):
        self.put(DATA)
        self.assertNotEqual(self.get(self.blob).headers['ETag'], self.tag)

    def test_no_such_range(self):
        for blob, asked in (
                (self.blob, f'bytes={SIZE}-'), (self.blob, 'bytes=-0'),
                (self.put(b'', 'empty'), 'bytes=0-')):
            answer = self.get(blob, headers={'Range': asked})
            self.assertEqual((answer.status, answer.body), (416, b''))
            self.assertEqual(
                answer.headers['Content-Range'],
                'bytes */' + self.get(blob).headers['Content-Length'])
            self.assertNotIn('Content-Type', answer.headers)

    def test_a_condition_that_failed(self):
        answer = self.get(self.blob, headers={
            'If-Match': '"x"', 'Range': f'bytes={SIZE}-'})
        self.assertEqual((answer.status, answer.body), (412, b''))

        with mock.patch.object(Source, 'open', side_effect=AssertionError):
            self.get(self.blob, headers={'If-None-Match': self.tag})

    # By whom

    def wrapped(self, software='waitress', **headers):
        wrapper = mock.Mock(side_effect=FileWrapper)
        answer = self.get(self.blob, headers=headers, environ={
            'wsgi.file_wrapper': wrapper, 'SERVER_SOFTWARE': software})
        return answer, [call.args[0] for call in wrapper.mock_calls]

    def test_the_server_sends_the_file(self):
        answer, [file] = self.wrapped('other')
        self.assertEqual(answer.body, DATA)
        self.assertTrue(file.closed)

    def test_a_server_that_might_get_it_wrong_sends_no_range(self):
        answer, calls = self.wrapped('other', Range='bytes=10-19')
        self.assertEqual((answer.body, calls), (DATA[10:20], []))

    def test_the_server_reads_in_pieces(self):
        """It may also take the descriptor."""
        file = BlobResponse(Request.blank('/', environ={
            'wsgi.file_wrapper': lambda file, size: file}), self.blob).app_iter
        with contextlib.closing(file), mock.patch.object(
                source, 'PIECE', 100):
            self.assertEqual(os.fstat(file.fileno()).st_size, SIZE)
            self.assertEqual(file.read(SIZE), DATA[:100])
            self.assertEqual(file.read(7), DATA[100:107])
            self.assertEqual(file.read(), DATA[107:])

    def test_in_pieces(self):
        response = BlobResponse(Request.blank('/'), self.blob)
        with mock.patch.object(source, 'PIECE', 100):
            pieces = list(response.app_iter)
        response.app_iter.close()
        self.assertEqual(b''.join(pieces), DATA)
        self.assertLessEqual(max(map(len, pieces)), 100)

    # Without the database

    def test_nothing_is_needed_of_the_connection(self):
        request = Request.blank('/')
        response = BlobResponse(request, self.blob)
        self.transactions.abort()
        self.connection.close()
        self.connection.cacheMinimize()
        with mock.patch.object(type(self.storage), 'loadBefore') as load:
            self.assertEqual(ask(request, response).body, DATA)
        load.assert_not_called()

    def test_a_ghost_stays_one_while_its_file_is_elsewhere(self):
        self.storage.leaseBlob = lambda *args: None
        self.storage.loadBlob = mock.Mock()
        self.blob._p_deactivate()
        answer = self.get(self.blob, headers={'If-None-Match': self.tag})
        self.assertEqual(answer.status, 304)
        self.assertIsNone(self.blob._p_changed)
        self.storage.loadBlob.assert_not_called()

    def test_a_ghost_stays_one_after_a_savepoint(self):
        """Its storage would say the file of what was taken back."""
        self.root['another'] = 1
        before = self.transactions.savepoint()
        with self.blob.open('w') as file:
            file.write(b'never')
        self.transactions.savepoint()
        before.rollback()
        self.assertEqual(self.get(self.blob).body, DATA)
        self.transactions.commit()
        with self.blob.open('a') as file:
            file.write(b'more')
        self.transactions.commit()
        self.assertEqual(self.get(self.blob).body, DATA + b'more')

    def test_the_blob_as_of_the_transaction(self):
        with self.db.transaction() as connection:
            with connection.root()['file'].open('w') as file:
                file.write(b'newer')
        self.assertEqual(self.get(self.blob).body, DATA)
        self.blob._p_deactivate()
        self.assertEqual(self.get(self.blob).body, DATA)

    def test_what_is_not_committed(self):
        self.root['new'] = new = Blob(b'new')
        self.connection.add(new)
        with self.assertRaises(BlobError):
            self.get(new)
        with self.assertRaises(BlobError):
            self.get(Blob(b'of no database'))
        with self.blob.open('w') as file:
            file.write(b'changed')
        with self.assertRaises(BlobError):
            self.get(self.blob)

    def test_what_is_in_a_savepoint(self):
        """Before they are looked at again, its blobs are ghosts."""
        self.root['new'] = new = Blob(b'new')
        with self.blob.open('w') as file:
            file.write(b'changed')
        self.transactions.savepoint()
        for look in lambda blob: None, Blob._p_activate:
            for blob in new, self.blob:
                look(blob)
                with self.assertRaises(BlobError):
                    self.get(blob)
        self.transactions.abort()
        self.assertEqual(self.get(self.blob).body, DATA)

    # Failures

    def test_a_file_that_is_gone(self):
        os.remove(self.blob.committed())
        with self.assertRaises(POSKeyError):
            self.get(self.blob)

    def test_a_file_that_ends_too_early(self):
        path = self.blob.committed()
        request = Request.blank('/')
        response = BlobResponse(request, self.blob)
        os.chmod(path, 0o600)
        os.truncate(path, 10)
        with self.assertRaises(OSError):
            ask(request, response)

    def test_a_server_that_fails(self):
        def start_response(*args):
            raise ConnectionError

        before = open_files()
        request = Request.blank('/')
        response = BlobResponse(request, self.blob)
        with self.assertRaises(ConnectionError):
            response(request.environ, start_response)
        self.assertLessEqual(open_files(), before)
        del response
