"""WSGI applications; the process that serves one has to `open` it.

One makes pages, the others send blobs.  The paths of blobs are `/small`, the
first blob; `/warm`, always the same one of the others; and `/cold`, the next
one with each request: so each of many requests for this path gets a different
file.
"""

import html
import itertools
import os

import ZODB
import ZODB.config

from fsyncstorage.timing.running import population

#: Where nginx has the files that it is told to send.
LOCATION = '/blob-files/'

#: The number of objects of a page.
CHILDREN = 10

SMALL, WARM, COLD = '/small', '/warm', '/cold'


class Blobs:
    """Blobs of a storage; subclasses have the `answer`."""

    def __init__(self, options):
        self._storage = options['storage']
        #: The directory that nginx has at `LOCATION`, or None.
        self._files = options['files']
        self._threads = options['threads']

    def open(self):
        self._db = ZODB.DB(
            ZODB.config.storageFromString(self._storage),
            pool_size=self._threads)
        with self._db.transaction() as connection:
            small, *others = [
                blob._p_oid for blob in population.ghosts(connection, 'blobs')]
        self._at = {
            SMALL: itertools.repeat(small),
            WARM: itertools.repeat(others[0]),
            COLD: itertools.cycle(others),
        }

    def __call__(self, environ, start_response):
        connection = self._db.open()
        try:
            oid = next(self._at[environ['PATH_INFO']])
            response = self.answer(environ, connection.get(oid))
        finally:
            connection.close()
        return response(environ, start_response)


class Ours(Blobs):

    def open(self):
        # Only this application needs WebOb.
        from webob import Request

        from fsyncstorage.files.handover import XAccelRedirect
        from fsyncstorage.files.response import BlobResponse
        super().open()
        self._request, self._response = Request, BlobResponse
        self._hand_over = self._files and XAccelRedirect(
            {LOCATION: self._files})

    def answer(self, environ, blob):
        return self._response(
            self._request(environ), blob, hand_over=self._hand_over)


class Stock(Blobs):
    """The way without our code: the file is sent by the server itself."""

    def answer(self, environ, blob):
        file = open(blob.committed(), 'rb')

        def respond(environ, start_response):
            start_response('200 OK', [
                ('Content-Type', 'application/octet-stream'),
                ('Content-Length', str(os.fstat(file.fileno()).st_size))])
            return environ['wsgi.file_wrapper'](file, 1 << 16)

        return respond


class Bare:
    """Sends the header alone; every path stands for the same file."""

    def __init__(self, options):
        [self._name] = os.listdir(options['files'])

    def open(self):
        pass

    def __call__(self, environ, start_response):
        start_response('200 OK', [
            ('Content-Type', 'application/octet-stream'),
            ('Content-Length', '0'),
            ('X-Accel-Redirect', LOCATION + self._name)])
        return []


class Page:
    """Lists objects; each request has a connection of its own."""

    def __init__(self, options):
        self._storage = options['storage']

    def open(self):
        """Showing the page once fills the caches."""
        self._db = ZODB.DB(ZODB.config.storageFromString(self._storage))
        self._show()

    def __call__(self, environ, start_response):
        body = self._show().encode()
        start_response('200 OK', [
            ('Content-Type', 'text/html; charset=utf-8'),
            ('Content-Length', str(len(body)))])
        return [body]

    def _show(self):
        with self._db.transaction() as connection:
            items = '\n'.join(
                f'<li>{child["number"]}: {html.escape(child["filling"])}'
                for child in population.ghosts(connection, 'page'))
            return f'<!DOCTYPE html>\n<title>Page</title>\n<ul>\n{items}\n'
