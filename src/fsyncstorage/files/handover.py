"""The front server sends the file: the application only says which.

nginx is told by `X-Accel-Redirect`, Apache and lighttpd by `X-Sendfile`.  The
path comes under a lease (`source`): the blob cache keeps the file until the
front server has it open.  All who ask within a few seconds share a lease, if
the file is there.  Should it be gone all the same, nginx asks again and says
so (``X-Blob-Missed``), and the application sends it itself.

What only the application can judge it answers itself: the front server looks
at conditions once more, and knows the file's time, not the transaction's.
"""

import os
import time
from urllib.parse import quote

from .source import LEASE

#: Seconds for which a lease is shared: of each, most is left.
SHARED = LEASE / 10

# Of the environ of a request.  By the first, nginx says that there was no
# such file.
_OURS_TO_ANSWER = (
    'HTTP_X_BLOB_MISSED', 'HTTP_IF_MATCH', 'HTTP_IF_UNMODIFIED_SINCE')


class HandOver:
    """Of files in some directories, by whatever links these are reached."""

    #: The name of the header.
    name: str | None = None

    def __init__(self, prefixes):
        """:param prefixes: of what the front server is told -> directories."""
        self._prefixes = {
            os.path.join(form(directory), ''): prefix.rstrip('/')
            for prefix, directory in prefixes.items()
            for form in (os.path.abspath, os.path.realpath)}
        self._forget()

    def _forget(self):
        self._offered = {}  # key of a source -> path, header
        self._offered_until = time.monotonic() + SHARED

    def offer(self, environ, source):
        """Name and value of a header; None: the application has to send."""
        if not self.allows(environ):
            return None
        if time.monotonic() > self._offered_until:
            self._forget()
        path, header = self._offered.get(source.key, (None, None))
        if path and os.path.exists(path):
            return header
        return self._offer(source)

    def _offer(self, source):
        path = source.lease()
        header = path and self.header(path)
        if header:
            self._offered[source.key] = path, header
        return header

    def allows(self, environ):
        """Whether the front server can do what this request asks for."""
        # A date for If-Range it would take.
        tagged = '"' in environ.get('HTTP_IF_RANGE', '"')
        return tagged and environ['REQUEST_METHOD'] == 'GET' and not any(
            map(environ.get, _OURS_TO_ANSWER))

    def header(self, path):
        """For a file; None: it is in none of the directories."""
        return self._header(path) or self._header(os.path.realpath(path))

    def _header(self, path):
        for directory, prefix in self._prefixes.items():
            if path.startswith(directory):
                rest = path[len(directory):]
                return self.name, quote(f'{prefix}/{rest}')
        return None


class XSendfile(HandOver):

    name = 'X-Sendfile'

    def __init__(self, directories):
        super().__init__({os.path.abspath(each): each for each in directories})


class XAccelRedirect(HandOver):
    """It takes internal locations of nginx -> directories."""

    name = 'X-Accel-Redirect'


def configured(x_accel_redirect='', x_sendfile=''):
    """As a paste configuration says it; None: it does not.

    Each is some lines: an internal location and its directory, or a directory.
    """
    if x_accel_redirect:
        return XAccelRedirect(dict(map(_location, _lines(x_accel_redirect))))
    if x_sendfile:
        return XSendfile(_lines(x_sendfile))
    return None


def _lines(text):
    return list(filter(None, map(str.strip, text.splitlines())))


def _location(line):
    prefix, _, directory = line.partition(' ')
    if not (prefix.startswith('/') and directory):
        raise ValueError(
            f'x_accel_redirect is "/LOCATION/ DIRECTORY", not {line!r}')
    return prefix, directory.strip()
