"""WSGI middleware: the front server sends the blob files of any application.

An application that returns a file by `wsgi.file_wrapper`, as Pyramid's
FileResponse and Zope do, need not be changed.  If the file is that of a blob,
the front server is told to send it: all of it, or the ranges that the request
asks for.  The headers are those of the application.

Two libraries hide the file.  WebOb, and so Pyramid, cuts a range out of an
iterator, unless the iterator has `app_iter_range`.  And the iterator of
plone.namedfile has only `read`.

Everything else passes unchanged.  A file that the application opened by its
path has no lease, because the filter does not know which blob it belongs to.
"""

import os
from wsgiref.util import FileWrapper

from ZODB.blob import BLOB_SUFFIX
from ZODB.blob import BlobFile
from ZODB.interfaces import BlobError
from ZODB.POSException import POSError

from .handover import configured
from .source import Body
from .source import Source

# The headers that the front server makes itself.
_ITS_OWN = 'content-length', 'content-range', 'accept-ranges'

# A class of plone.namedfile, with the file in `_io` (5.6.0, 6.4.0, 8.1.1).
_HIDING = 'filestream_range_iterator'


class Filter:

    def __init__(self, application, hand_over):
        self._application = application
        self._hand_over = hand_over

    def __call__(self, environ, start_response):
        if not self._hand_over.allows(environ):
            return self._application(environ, start_response)
        wrapper = environ.get('wsgi.file_wrapper')
        environ['wsgi.file_wrapper'] = _Wrapped
        start = _Start(start_response)
        result = self._application(environ, start)
        if not isinstance(result, _Wrapped):
            start.go_on()
            return result
        try:
            header = start.said and self._header(
                environ, result.filelike, *start.said)
            if header:
                start.replace(header)
                result.close()
                return []
            start.go_on()
            return result.unwrapped(wrapper)
        except BaseException:
            result.close()
            raise

    def _header(self, environ, file, status, headers, exc_info):
        if type(file).__name__ == _HIDING:
            file = getattr(file, '_io', file)
        if _is_what_the_front_server_would_send(
                environ, file, status[:3], {
                    name.lower(): value for name, value in headers}):
            path = _path(file)
            return path and self._hand_over.header(path)


def make_filter(application, global_conf, **settings):
    """For paste: the settings are those of `handover.configured`."""
    hand_over = configured(**settings)
    return Filter(application, hand_over) if hand_over else application


class _Wrapped(FileWrapper):

    # Start and stop.
    _range = None

    def app_iter_range(self, start, stop):
        """Called by WebOb; None: WebOb sends the whole file."""
        if not hasattr(self.filelike, 'seek'):
            return None
        self._range = start, stop
        return self

    def unwrapped(self, wrapper):
        """The file in the server's own wrapper."""
        if self._range:
            return Body(self.filelike, *self._range)
        return wrapper(self.filelike, self.blksize) if wrapper else self


class _Start:
    """A start_response that waits until the filter knows what to send."""

    def __init__(self, start_response):
        self._start_response = start_response
        self._waits = True
        #: Its arguments: status, headers, exc_info.
        self.said = None

    def __call__(self, status, headers, exc_info=None):
        if not self._waits:
            return self._start_response(status, headers, exc_info)
        self.said = status, headers, exc_info
        return lambda data: self.go_on()(data)

    def go_on(self):
        """Return the `write` of the server, if the application has started."""
        if self._waits:
            self._waits = False
            self._write = self.said and self._start_response(*self.said)
        return self._write

    def replace(self, header):
        headers = [(name, value) for name, value in self.said[1]
                   if name.lower() not in _ITS_OWN]
        self._start_response(
            '200 OK', headers + [header, ('Content-Length', '0')])


def _is_what_the_front_server_would_send(environ, file, status, headers):
    if 'content-encoding' in headers:
        return False
    if status == '206':
        return 'HTTP_RANGE' in environ
    try:
        size = os.fstat(file.fileno()).st_size
        return (status == '200' and file.tell() == 0
                and headers.get('content-length') in (None, str(size)))
    except (OSError, AttributeError):
        return False  # not a file of the operating system


def _path(file):
    if isinstance(file, BlobFile):
        try:
            path = Source(file.blob).lease()
        except (BlobError, OSError, POSError):
            return None  # the open file is sent as it is
        return path if path == file.name else None
    name = getattr(file, 'name', None)
    if isinstance(name, str) and name.endswith(BLOB_SUFFIX):
        return os.path.abspath(name)
    return None
