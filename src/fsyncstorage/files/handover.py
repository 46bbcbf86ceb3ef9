"""The front server sends the file: the application only says which one.

For nginx it does so by the header `X-Accel-Redirect`, for Apache and lighttpd
by `X-Sendfile`.  The path has a lease (`source`): the blob cache keeps the
file until the front server has it open.  Requests within a few seconds share a
lease, as long as the file is there.  If the file is gone nevertheless, nginx
asks again, with ``X-Blob-Missed``, and the application sends the file itself.

The application itself answers requests with conditions that only it can judge:
the front server would check them again, with the time of the file in place of
that of the transaction.
"""

import os
import time
from urllib.parse import quote

from .source import LEASE

#: Seconds for which requests share a lease: most of it is left at the end.
SHARED = LEASE / 10

# Headers of requests (in the environ) that the application must answer.  With
# the first one, nginx reports that there was no such file.
_OURS_TO_ANSWER = (
    'HTTP_X_BLOB_MISSED', 'HTTP_IF_MATCH', 'HTTP_IF_UNMODIFIED_SINCE')


class HandOver:
    """For files in some directories, even if reached by symbolic links."""

    #: The name of the header.
    name: str | None = None

    def __init__(self, prefixes):
        """:param prefixes: path prefix for the front server -> directory."""
        self._prefixes = {
            os.path.join(form(directory), ''): prefix.rstrip('/')
            for prefix, directory in prefixes.items()
            for form in (os.path.abspath, os.path.realpath)}
        self._forget()

    def _forget(self):
        self._offered = {}  # key of a source -> path, header
        self._offered_until = time.monotonic() + SHARED

    def offer(self, environ, source):
        """Name and value of a header; None: the application must send the
        file."""
        if not self.allows(environ):
            return None
        if time.monotonic() > self._offered_until:
            self._forget()
        path, header = self._offered.get(source.key, (None, None))
        if path and os.path.exists(path):
            return header
        path = source.lease()
        header = path and self.header(path)
        if header:
            self._offered[source.key] = path, header
        return header

    def allows(self, environ):
        """Can the front server do what this request asks for?"""
        # The front server would accept a date in If-Range.
        tagged = '"' in environ.get('HTTP_IF_RANGE', '"')
        return tagged and environ['REQUEST_METHOD'] == 'GET' and not any(
            map(environ.get, _OURS_TO_ANSWER))

    def header(self, path):
        """Name and value of the header for a file.

        None: the file is in none of the directories.
        """
        for form in path, os.path.realpath(path):
            for directory, prefix in self._prefixes.items():
                if form.startswith(directory):
                    rest = form.removeprefix(directory)
                    return self.name, quote(f'{prefix}/{rest}')
        return None


class XSendfile(HandOver):

    name = 'X-Sendfile'

    def __init__(self, directories):
        super().__init__({os.path.abspath(each): each for each in directories})


class XAccelRedirect(HandOver):
    """Takes a mapping: internal location of nginx -> directory."""

    name = 'X-Accel-Redirect'


def configured(x_accel_redirect='', x_sendfile=''):
    """The HandOver of a paste configuration, or None.

    `x_accel_redirect` has lines with an internal location and its directory,
    `x_sendfile` has lines with a directory.
    """
    lines = [line.strip() for line in (
        x_accel_redirect or x_sendfile).splitlines() if line.strip()]
    if not x_accel_redirect:
        return XSendfile(lines) if lines else None
    for line in lines:
        if not line.startswith('/') or ' ' not in line:
            raise ValueError(
                f'x_accel_redirect is "/LOCATION/ DIRECTORY", not {line!r}')
    return XAccelRedirect(dict(line.split(None, 1) for line in lines))
