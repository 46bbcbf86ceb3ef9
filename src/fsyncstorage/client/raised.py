"""The exception that an Error of a server stands for."""

import builtins

from ZEO.Exceptions import ServerException
from ZODB import POSException

from .. import errors
from ..wire import values
from ..wire.frames import PeerError

_MODULES = {'ZODB.POSException': POSException, 'builtins': builtins,
            'fsyncstorage.errors': errors}


def exception(error):
    """Of the class that the server names, if it is one of these; its arguments
    are plain values."""
    name = error.name.decode('ascii', 'replace')
    try:
        arguments = values.decoded(error.arguments)
    except PeerError as unreadable:
        return ServerException(name, str(unreadable))
    module, _, plain = name.rpartition('.')
    kind = vars(_MODULES.get(module, errors)).get(plain)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return ServerException(name, arguments)
    try:
        # Without `__init__`: a ConflictError unpickles there what it gets.
        if isinstance(arguments, dict):  # what its instance has
            made = kind.__new__(kind)
            vars(made).update(arguments)
            return made
        return kind.__new__(kind, *arguments)
    except Exception:  # it takes others
        return ServerException(name, arguments)
