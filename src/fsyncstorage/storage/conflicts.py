"""Which records may be unpickled to resolve a conflict.

To resolve a conflict, ZODB unpickles three states of an object in the process
that commits, and passes them to the `_p_resolveConflict` of its class.  In a
server, the states come from its clients, and a pickle can import any module
and call any function.  So the records are read first, without importing or
calling what they name, and ZODB gets them only if all this is true:

- the object's class has a `_p_resolveConflict`;
- each name in a record is one of VALUES, or of a class from outside the
  standard library (or of nothing: ZODB replaces a missing class by a broken
  object);
- a record that calls something names nothing but VALUES and persistent
  classes.  All other objects are made without a call, as pickles of protocol
  2 and later do it: by `__new__` and, if a class has one, `__setstate__`;
- no memo number in a record is larger than the length of the record.

Else the conflict cannot be resolved.  The error for that is made here, too:
if ZODB's ConflictError is given the record, it unpickles the beginning to name
the class.

Risks that remain: modules of the site are imported; the three methods named
here, and the constructors of persistent classes, are called with data that a
client has stored; and a state may be nested so deeply that the process ends.
`client-conflict-resolution true` leaves all of that to the clients.
"""

import contextlib
import importlib
import io
import sys
from typing import NoReturn

from persistent import Persistent
from ZODB._compat import PersistentUnpickler
from ZODB.ConflictResolution import ConflictResolvingStorage
from ZODB.ConflictResolution import find_global
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError

from ..format import classname
from ..format.references import Pickles

# Callables that make a value, and do nothing else.
VALUES = frozenset([
    ('copyreg', '_reconstructor'), ('_codecs', 'encode'),
    ('datetime', 'date'), ('datetime', 'datetime'), ('datetime', 'time'),
    ('datetime', 'timedelta'), ('datetime', 'timezone'),
    ('decimal', 'Decimal'), ('fractions', 'Fraction'), ('uuid', 'UUID'),
    ('collections', 'Counter'), ('collections', 'OrderedDict'),
    ('collections', 'defaultdict'), ('collections', 'deque'),
    *(('builtins', kind.__name__) for kind in (
        object, set, frozenset, dict, list, tuple, complex, int, float, str,
        bytes)),
])


class Untrusted(Exception):
    """The record must not be unpickled."""


class Conflicts(ConflictResolvingStorage):
    """Part of a storage: resolves conflicts as stock does."""

    _distrusts_records = False
    _leaves_conflicts = False

    def distrust_records(self, resolve: bool = True) -> None:
        """Called by a server: from now on, records come from clients.

        Without `resolve`, the clients resolve the conflicts themselves.
        """
        self._distrusts_records = True
        self._leaves_conflicts = not resolve

    def tryToResolveConflict(self, oid: bytes, committedSerial: bytes,
                             oldSerial: bytes, newpickle: bytes,
                             committedData: bytes = b'') -> bytes:
        if self._leaves_conflicts:
            leave(oid, committedSerial, oldSerial, newpickle)
        if self._distrusts_records:
            try:
                self._check_records(oid, oldSerial, newpickle, committedData)
            except Untrusted:
                leave(oid, committedSerial, oldSerial, newpickle)
        return super().tryToResolveConflict(
            oid, committedSerial, oldSerial, newpickle, committedData)

    def _check_records(self, oid: bytes, old_serial: bytes,
                       *records: bytes) -> None:
        """Check these records, and that of the old serial, before stock
        unpickles them."""
        for record in records:
            if record:
                check(self._crs_untransform_record_data(record))
        with contextlib.suppress(POSKeyError):  # stock raises it, too
            check(self._crs_untransform_record_data(
                self.loadSerial(oid, old_serial)))


def check(record: bytes) -> None:
    """Raise Untrusted unless the record may be unpickled."""
    try:
        pickles = Pickles(record)
        names = {(module.decode(), name.decode())
                 for module, name in pickles.names}
    except ValueError as error:
        raise Untrusted(f'a record that cannot be read ({error})') from error
    if max(pickles.memo, default=0) > len(record):
        raise Untrusted('a large memo number')
    for name in names - VALUES:
        found = _class_of_the_site(*name)
        if pickles.calls and found and not issubclass(found, Persistent):
            raise Untrusted(f'calls, and {".".join(name)}')
    _check_that_it_resolves(record)


def _class_of_the_site(module: str, name: str) -> type[object] | None:
    """The class of that name, from outside the standard library; None if there
    is nothing of that name."""
    if _is_standard(module):
        raise Untrusted(f'{module}.{name}')
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    except (Exception, SystemExit) as error:  # a module may raise anything
        raise Untrusted(f'{module} cannot be imported: {error}') from error
    is_of_the_site = isinstance(found, type) and not _is_standard(
        str(found.__module__))
    if found is not None and not is_of_the_site:
        raise Untrusted(f'{module}.{name}')
    return found


def _is_standard(module: str) -> bool:
    return module.partition('.')[0] in sys.stdlib_module_names


def _check_that_it_resolves(record: bytes) -> None:
    """Check that the class of the record has a `_p_resolveConflict`.

    (The names in the record were checked, and ZODB will unpickle the same.)
    """
    try:
        found = PersistentUnpickler(
            find_global, None, io.BytesIO(record)).load()
        if isinstance(found, tuple):
            found = found[0]
        if isinstance(found, tuple):  # as old releases of ZODB wrote it
            found = _class_of_the_site(*found)
        resolves = hasattr(found, '_p_resolveConflict')
    except (Exception, SystemExit) as error:  # as may invalid data
        raise Untrusted(f'its class is not known ({error})') from error
    if not resolves:
        raise Untrusted(f'{found!r:.100} does not resolve conflicts')


def leave(oid: bytes, committed_serial: bytes, old_serial: bytes,
          record: bytes, committed_data: bytes = b'') -> NoReturn:
    """Refuse to resolve a conflict, and unpickle nothing for the error.

    This can take the place of `tryToResolveConflict` in any storage.
    """
    error = ConflictError(oid=oid, serials=(committed_serial, old_serial))
    error.class_name = classname.class_name(record[:classname.ENOUGH])
    raise error
