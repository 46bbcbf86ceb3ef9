"""A WSGI application that serves the blobs of a database, by their paths.

A path names mapping objects (BTrees, PersistentMapping) from the root of the
database on, and a blob at the end; its last name is the name of the file.  Two
hooks change this:

- `find(root, names)` returns the blob of a path, or a `File`, or raises
  KeyError;
- `publish(request, names)` decides whether the request may have the blob: it
  returns true or false, or raises an error of `webob.exc`.  Shared caches,
  which would not call this hook, are then told to keep nothing.  Without the
  hook, what `traverse` finds is public, and what another `find` finds is not.

The application only reads.  Each request is a transaction, which ends before
the file is sent.
"""

import atexit
import dataclasses
import pkgutil
from collections.abc import Mapping

import transaction
from transaction.interfaces import TransientError
from webob import Request
from webob import exc
from ZODB.blob import Blob
from ZODB.config import databaseFromURL

from .handover import configured
from .response import BlobResponse


@dataclasses.dataclass
class File:
    """A blob, and what a browser is told about it."""

    blob: Blob
    filename: str | None = None
    content_type: str | None = None


def traverse(root, names):
    """The object that the names lead to, through mapping objects only."""
    found = root
    for name in names:
        if not isinstance(found, Mapping):
            raise KeyError(name)
        try:
            found = found[name]
        except TypeError:  # the keys are not texts
            raise KeyError(name) from None
    return found


class Application:

    def __init__(self, db, find=traverse, publish=None, hand_over=None):
        self._db = db
        self._find = find
        self._is_public = publish is None
        self._publish = publish or (lambda *args: find is traverse)
        self._hand_over = hand_over

    def __call__(self, environ, start_response):
        try:
            answer = self._answer(Request(environ))
        except exc.HTTPException as error:
            answer = error
        except (KeyError, FileNotFoundError):
            # FileNotFoundError: a pack has just removed the blob.
            answer = exc.HTTPNotFound()
        except TransientError:
            answer = exc.HTTPServiceUnavailable()
        if not self._is_public:
            answer.headers.setdefault('Cache-Control', 'private')
        return answer(environ, start_response)

    def _answer(self, request):
        if request.method not in ('GET', 'HEAD'):
            raise exc.HTTPMethodNotAllowed(headers=[('Allow', 'GET, HEAD')])
        names = _names(request)
        if not self._publish(request, names):
            raise exc.HTTPForbidden()
        manager = transaction.TransactionManager(explicit=True)
        manager.begin()
        connection = self._db.open(manager)
        try:
            file = self._find(connection.root(), names)
            if isinstance(file, Blob):
                file = File(file, names[-1])
            if not isinstance(file, File):
                raise exc.HTTPNotFound()
            return BlobResponse(
                request, file.blob, file.content_type, file.filename,
                hand_over=self._hand_over)
        finally:
            manager.abort()
            connection.close()


def make_application(global_conf, database, find=None, publish=None,
                     **hand_over):
    """For paste.

    :param database: the path or URL of a ZConfig file with a ``<zodb>``.
    :param find: the hook, as ``module:name``.
    :param publish: the same.
    :param hand_over: what `handover.configured` takes.
    """
    hand_over = configured(**hand_over)
    find = pkgutil.resolve_name(find) if find else traverse
    publish = pkgutil.resolve_name(publish) if publish else None
    db = databaseFromURL(database)
    atexit.register(db.close)
    return Application(db, find, publish, hand_over)


def _names(request):
    try:
        return request.path_info.lstrip('/').split('/')
    except UnicodeDecodeError:
        raise exc.HTTPBadRequest('The path is not UTF-8.') from None
