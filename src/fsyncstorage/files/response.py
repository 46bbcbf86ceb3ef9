"""A WSGI response (WebOb) that sends a committed blob.

The response reads all that it needs from the database when it is made.  So it
can be sent after the connection was closed, or while the connection is used
for something else.  The steps: does it need a full answer (`asked`),
can the front server send the file (`handover`), which bytes (`asked`)?  The
WSGI server sends the bytes if it has a `wsgi.file_wrapper`; otherwise a
`source.Body` does.

The entity tag is strong: it names the object and its transaction.

Files come from people whom the site may not trust.  A browser must not run
them in the name of the site: any file that is not known to be harmless is an
attachment, which is saved and not shown.  With `nosniff`, the browser uses the
declared type.
"""

import mimetypes
import re
from email.utils import formatdate
from urllib.parse import quote

from webob import Response

from . import asked
from .source import PIECE
from .source import Body
from .source import InPieces
from .source import Source
from .source import is_complete

# Servers whose file_wrapper begins at the file's position, and ends after
# Content-Length bytes, as in PEP 3333.  Others may begin at 0, or send all.
EXACT = 'waitress', 'gunicorn'

# For a browser to save, and nothing else.
UNKNOWN = 'application/octet-stream'

# Without a comma: browsers take the last type of a list.
_TYPE = re.compile(r'[\w.+-]+/[\w.+-]+( *;[ -+\--~]*)?', re.ASCII)
_SHOWN = re.compile(
    # A type that ends in +xml could be a page.
    r'((image|audio|video)/(?!svg)[^+]*|text/plain|application/pdf)$')

# Characters that separate directories, could end the quotes, or are not ASCII.
_UNSAFE = re.compile(r'[^ !#$&-.0-9:-\[\]-~]')


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
        source = Source(blob)
        super().__init__(app_iter=(), headerlist=[
            ('ETag', source.tag),
            ('Last-Modified', formatdate(source.modified, usegmt=True)),
        ])
        refusal = asked.refusal(
            request.environ, source.tag, source.modified)
        if refusal:
            self.status = refusal
            if refusal != 304:
                self._say_length(0)
            return
        header = hand_over and hand_over.offer(request.environ, source)
        if header:
            self.headerlist.append(header)
            self._say_length(0)
        elif not self._send(request.environ, source):
            return
        type_ = checked_type(content_type, filename)
        self.headerlist.extend([
            ('Content-Type', type_),
            ('Content-Disposition', content_disposition(
                filename, type_, attachment)),
            ('X-Content-Type-Options', 'nosniff'),
            ('Accept-Ranges', 'bytes'),
        ])

    def _send(self, environ, source):
        """Is there something to send: does the file have the range?"""
        file, size = source.open()
        part = (environ['REQUEST_METHOD'] == 'GET'
                and asked.range_counts(environ, source.tag)
                and asked.select(environ.get('HTTP_RANGE'), size))
        start, stop = part or (0, size)
        if part and start == stop:
            file.close()
            self.status = 416
            self.headers['Content-Range'] = f'bytes */{size}'
            self._say_length(0)
            return False
        self.app_iter = _body(environ, file, start, stop, size)
        if part:
            self.status = 206
            self.headers['Content-Range'] = f'bytes {start}-{stop - 1}/{size}'
        self._say_length(stop - start)
        return True

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


def checked_type(given, filename):
    """The given type; if it is None, the type that the file name suggests.

    UNKNOWN if that is not a valid type.
    """
    if given is None and filename:
        guessed, encoding = mimetypes.guess_type(filename)
        given = None if encoding else guessed
    return given if given and _TYPE.fullmatch(given) else UNKNOWN


def content_disposition(filename, type_, attachment=False):
    """The header; always an attachment if the file could be run.

    Names are written as in RFC 6266 and RFC 8187: in ASCII for old browsers,
    and in UTF-8.
    """
    bare = type_.partition(';')[0].strip().lower()
    shown = _SHOWN.match(bare) and not attachment
    header = 'inline' if shown else 'attachment'
    if filename:
        plain = _UNSAFE.sub('_', filename)
        header += f'; filename="{plain}"'
        if plain != filename:
            encoded = quote(filename.encode('utf-8', 'replace'), safe='')
            header += f"; filename*=UTF-8''{encoded}"
    return header
