"""The front server sends the file: the application only says which.

nginx is told by `X-Accel-Redirect`, Apache and lighttpd by `X-Sendfile`.  The
path comes under a lease (`source`): the blob cache keeps the file until the
front server has it open.  Should it be gone all the same, nginx asks again and
says so (``X-Blob-Missed``), and the application sends it itself.

What only the application can judge it answers itself: the front server looks
at conditions once more, and knows the file's time, not the transaction's.
"""

import os
from urllib.parse import quote

# Of the environ of a request.  By the first, nginx says that there was no
# such file.
_OURS_TO_ANSWER = (
    'HTTP_X_BLOB_MISSED', 'HTTP_IF_MATCH', 'HTTP_IF_UNMODIFIED_SINCE')


class HandOver:
    """Of files in some directories."""

    def __init__(self, directories):
        self._directories = [
            os.path.join(os.path.abspath(each), '') for each in directories]

    def offer(self, environ, source):
        """Name and value of a header; None: the application has to send."""
        if self.allows(environ):
            path = source.lease()
            return path and self.header(path)
        return None

    def allows(self, environ):
        """Whether the front server can do what this request asks for."""
        return environ['REQUEST_METHOD'] == 'GET' and not any(
            map(environ.get, _OURS_TO_ANSWER))

    def header(self, path):
        """For a file; None: it is in none of the directories."""
        for directory in self._directories:
            if path.startswith(directory):
                return self._header(directory, path)
        return None


class XSendfile(HandOver):

    def _header(self, directory, path):
        return 'X-Sendfile', quote(path)


class XAccelRedirect(HandOver):

    def __init__(self, locations):
        """:param locations: internal locations of nginx -> directories."""
        super().__init__(locations.values())
        self._prefixes = dict(zip(self._directories, locations))

    def _header(self, directory, path):
        rest = path[len(directory):]
        prefix = self._prefixes[directory].rstrip('/')
        return 'X-Accel-Redirect', f'{prefix}/{quote(rest)}'


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
