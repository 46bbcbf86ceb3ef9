"""The process that resolves conflicts for a server.

ZODB unpickles three states of an object here, and passes them to the
`_p_resolveConflict` of its class.  The states come from the server's clients,
and a pickle can import any module and call any function.  So the records are
read first, without importing or calling what they name, and ZODB gets them
only if all this is true:

- the object's class has a `_p_resolveConflict`;
- each name in a record is one of VALUES, or of a class from outside the
  standard library (or of nothing: ZODB replaces a missing class by a broken
  object);
- a record that calls something names nothing but VALUES and persistent
  classes.  All other objects are made without a call, as pickles of protocol
  2 and later do it: by `__new__` and, if a class has one, `__setstate__`.

What remains may take any time and memory, whatever it is: a number of many
digits, a list, numbers of one hash, a method that never returns.  `Limits`
bounds both.

Risks that remain: modules of the site are imported; the three methods named
here, and the constructors of persistent classes, are called with data that a
client has stored.  `client-conflict-resolution true` leaves all of that to the
clients.
"""

import base64
import contextlib
import importlib
import io
import itertools
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence

from persistent import Persistent
from ZODB._compat import PersistentUnpickler
from ZODB.ConflictResolution import ConflictResolvingStorage
from ZODB.ConflictResolution import find_global
from ZODB.POSException import ConflictError
from ZODB.utils import z64

from ..format.references import Pickles
from ..processes.parent import Message
from ..processes.parent import ParentProcess

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

# Different names in one conflict: each may be of a module to be imported.
MOST_NAMES = 100

Name = tuple[str, str]


class Untrusted(Exception):
    """The records must not be unpickled."""


class ImportsTakeLong(BaseException):
    """Raised in the middle of an import, where a site may catch any Exception.
    """


def main(pid: int) -> None:
    parent = ParentProcess(pid)
    limits = Limits(**parent.job())
    while True:
        answer = _answer([base64.b64decode(each) for each
                          in parent.command()['records']], limits)
        parent.report(answer | {'imported': limits.imported})
        if 'ended' in answer:
            os._exit(0)


def _answer(records: Sequence[bytes], limits: 'Limits') -> Message:
    limits.imported = 0.0
    limits.begin()
    try:
        check(records, limits.imports())
        return {'resolved': base64.b64encode(_resolved(*records)).decode()}
    except (ConflictError, Untrusted):
        return {'refused': None}
    except ImportsTakeLong as error:
        return {'ended': str(error)}
    except MemoryError:  # perhaps not all of it can be used again
        return {'ended': 'it takes too much memory'}
    except BaseException as error:
        return {'refused': f'{error!r:.200}'}
    finally:
        limits.end()


class Limits:
    """The seconds and the memory that one conflict may take.

    When the time is over, the system ends this process: code in C may run for
    minutes and let no other thread run.  `seconds` are those of a processor,
    as the machine may be busy, and `longest` those of the clock.  Imports run
    the site's own code without a client's data: they get other seconds, and
    any memory.
    """

    #: Seconds of the imports of this conflict.
    imported = 0.0

    def __init__(self, seconds: float, longest: float, importing: float,
                 room: int) -> None:
        self._seconds = seconds
        self._longest = longest
        self._importing = importing
        self._most = _size() + room
        self._limits = resource.getrlimit(resource.RLIMIT_AS)
        for number in signal.SIGPROF, signal.SIGALRM:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])

    def begin(self) -> None:
        before, hard = self._limits
        if before == resource.RLIM_INFINITY or before > self._most:
            resource.setrlimit(resource.RLIMIT_AS, (self._most, hard))
        signal.setitimer(signal.ITIMER_PROF, self._seconds)
        signal.setitimer(signal.ITIMER_REAL, self._longest)

    @contextlib.contextmanager
    def imports(self) -> Iterator[None]:
        """What the modules take is not counted."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGALRM, self._end_imports)
        signal.setitimer(signal.ITIMER_REAL, self._importing)
        before, begun = _size(), time.monotonic()
        resource.setrlimit(resource.RLIMIT_AS, self._limits)
        try:
            yield
        finally:
            self.imported = time.monotonic() - begun
            self._most += _size() - before
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            self.begin()

    def _end_imports(self, *_: object) -> None:
        raise ImportsTakeLong(
            f'its imports took more than {self._importing:g} s')

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _size() -> int:
    """Bytes of address space that this process uses."""
    try:
        with open('/proc/self/statm') as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except FileNotFoundError:  # not Linux
        return 1 << 40


def check(records: Sequence[bytes],
          imports: contextlib.AbstractContextManager[None]) -> None:
    """Raise Untrusted unless the records may be unpickled."""
    pickles = [_scanned(record) for record in records]
    names = _names(pickles)
    if len(names) > MOST_NAMES:
        raise Untrusted(f'{len(names)} names')
    with imports:
        classes = {name: _class_of_the_site(*name) for name in names}
    for each in pickles:
        for name in _names([each]):
            found = classes[name]
            if each.calls and found and not issubclass(found, Persistent):
                raise Untrusted(f'calls, and {".".join(name)}')
    for record in records:
        _check_that_it_resolves(record)


def _scanned(record: bytes) -> Pickles:
    try:
        return Pickles(record)
    except ValueError as error:
        raise Untrusted(f'a record that cannot be read ({error})') from error


def _names(pickles: Iterable[Pickles]) -> set[Name]:
    names = itertools.chain.from_iterable(each.names for each in pickles)
    try:
        return {(module.decode(), name.decode())
                for module, name in names} - VALUES
    except ValueError as error:
        raise Untrusted(f'a name that cannot be read ({error})') from error


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
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:  # as may invalid data
        raise Untrusted(f'its class is not known ({error})') from error
    if not resolves:
        raise Untrusted(f'{found!r:.100} does not resolve conflicts')


class _Record(ConflictResolvingStorage):
    """In place of a storage, for ZODB: it has the old record alone."""

    def __init__(self, old: bytes) -> None:
        self._old = old

    def loadSerial(self, oid: bytes, serial: bytes) -> bytes:
        return self._old


class _Error(logging.Handler):
    """Keeps an error that ZODB only logs."""

    error: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            self.error = record.exc_info[1]


def _resolved(old: bytes, committed: bytes, new: bytes) -> bytes:
    logger = logging.getLogger('ZODB.ConflictResolution')
    logger.propagate = False
    logger.handlers = [handler := _Error()]
    try:
        return _Record(old).tryToResolveConflict(
            z64, z64, z64, new, committed)
    except ConflictError as error:
        raise handler.error or error from None
