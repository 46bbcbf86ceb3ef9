"""A WSGI response (WebOb) that sends a committed blob.

The response reads all that it needs from the database when it is made.  So it
can be sent after the connection was closed, or while the connection is used
for something else.  The steps: does it need a full answer (`asked`),
can the front server send the file (`handover`), which bytes (`asked`)?  The
WSGI server sends the bytes if it has a `wsgi.file_wrapper`; otherwise `bodies`
does.

The entity tag is strong: it names the object and its transaction.
"""

import contextlib

from webob import Response

from . import asked
from .bodies import PIECE
from .bodies import Body
from .bodies import InPieces
from .disposition import content_disposition
from .disposition import content_type as checked_type
from .source import Source
from .source import is_complete

# Servers whose file_wrapper begins at the file's position, and ends after
# Content-Length bytes, as in PEP 3333.  Others may begin at 0, or send all.
EXACT = 'waitress', 'gunicorn'


class BlobResponse(Response):

    def __init__(self, request, blob, content_type=None, filename=None,
                 attachment=False, hand_over=None):
        """The answer to a GET or HEAD.

        :param request: of WebOb, or of a framework that builds on it.
        :param blob: a committed ZODB.blob.Blob.
        :param content_type: of the file; None: guess it from the file name.
        :param filename: the name under which a browser saves the file.
        :param attachment: to be saved, even if it could be shown.
        :param hand_over: a `handover.HandOver`, if a front server can send.
        """
        source = Source.of(blob)
        super().__init__(app_iter=(), headerlist=[
            ('ETag', source.tag),
            ('Last-Modified', asked.http_date(source.modified)),
        ])
        refusal = asked.refusal(
            request.environ, source.tag, source.modified)
        if refusal:
            self._say(refusal)
            return
        self._describe(content_type, filename, attachment)
        self._send(request.environ, source, hand_over)

    def _describe(self, content_type, filename, attachment):
        type_ = checked_type(content_type, filename)
        self.headerlist.extend([
            ('Content-Type', type_),
            ('Content-Disposition', content_disposition(
                filename, type_, attachment)),
            ('X-Content-Type-Options', 'nosniff'),
            ('Accept-Ranges', 'bytes'),
        ])

    def _say(self, status):
        """Answer without a body."""
        self.status = status
        if status != 304:
            self._say_length(0)

    # The body

    def _send(self, environ, source, hand_over):
        header = hand_over and hand_over.offer(environ, source)
        if header:
            self.headerlist.append(header)
            self._say_length(0)
            return
        file, size = source.open()
        with contextlib.ExitStack() as unless_taken:
            unless_taken.callback(file.close)
            try:
                part = _range(environ, source, size)
            except asked.Unsatisfiable:
                self._refuse(size)
                return
            start, stop = part or (0, size)
            if part:
                self.status = 206
                self.headers['Content-Range'] = (
                    f'bytes {start}-{stop - 1}/{size}')
            self.app_iter = _body(environ, file, start, stop, size)
            self._say_length(stop - start)
            unless_taken.pop_all()

    def _refuse(self, size):
        self._say(416)
        del self.headers['Content-Type']
        del self.headers['Content-Disposition']
        self.headers['Content-Range'] = f'bytes */{size}'

    def _say_length(self, length):
        # The setter of `content_length` is slow.
        self.headerlist.append(('Content-Length', str(length)))

    def __call__(self, environ, start_response):
        try:
            return super().__call__(environ, start_response)
        except BaseException:
            # The server does not have the iterator yet, so we close it.
            getattr(self.app_iter, 'close', tuple)()
            raise


def _range(environ, source, size):
    if environ['REQUEST_METHOD'] != 'GET' or not asked.range_counts(
            environ, source.tag):
        return None
    return asked.select(environ.get('HTTP_RANGE'), size)


def _body(environ, file, start, stop, size):
    """The body: the server's own file wrapper, if it has one."""
    wrapper = environ.get('wsgi.file_wrapper')
    software = environ.get('SERVER_SOFTWARE', '')
    whole = stop - start == size
    if wrapper and is_complete(file) and (whole or software.startswith(EXACT)):
        if start:
            file.seek(start)
        return wrapper(InPieces(file), PIECE)
    return Body(file, start, stop)
