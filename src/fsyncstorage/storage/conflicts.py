"""Who resolves a conflict.

In a server, the records come from its clients.  A process of its own resolves
the conflicts there (resolution), or the clients do.  Any other process
resolves them as stock does: it trusts its records, as it trusts all objects in
the file; and their classes may be known to it alone.

The process is started for the first conflict, and goes on.  If a conflict ends
it, because it takes too long or too much memory, the next conflict starts
another one.  Conflicts are resolved one at a time, in any thread; `close`, in
another thread, ends the one that is under way.

If a conflict cannot be resolved in a server, the error is made here: if ZODB's
ConflictError is given the record, it unpickles the beginning to name the
class.
"""

import base64
import json
import logging
import signal
import sys
import threading
import time
from typing import Any
from typing import NoReturn

from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError

from ..format.classes import class_name
from ..format.view import View
from ..processes import starting

logger = logging.getLogger(__name__)

# Seconds of a processor that a conflict may take; seconds of the clock that it
# may take, and all conflicts of one transaction before the last one; and
# seconds for modules that it has to import before.
LONGEST = 1.0
LONGEST_WAIT = 5.0
IMPORTING = 10.0
# Bytes of memory that a conflict may take beside the modules; and bytes of its
# three records together.  (Each is in memory some ten times, in base64.)
ROOM = 128 << 20
MOST_OF_RECORDS = 8 << 20
# Seconds after which the process that has not kept its own limits is ended: it
# may be stopped, or the machine be busy.
_PATIENCE = 10
# What ends the process, by exit code.
_TOO_LONG = {
    -signal.SIGPROF: f'it took more than {LONGEST:g} s of a processor',
    -signal.SIGALRM: f'it took more than {LONGEST_WAIT:g} s'}


class Unresolvable(Exception):
    """It is an ordinary conflict."""


class _Ended(Exception):
    """The process has ended, or has to: the reason."""


class Spent(threading.local):
    """What the process has spent for this thread."""

    #: On its last conflict: without the start and the imports.
    seconds = 0.0


class Conflicts:
    """Those of one storage."""

    def __init__(self, name: str) -> None:
        self._name = name
        #: Records come from the clients of a server.
        self.of_clients = False
        self._are_left = False
        self._lock = threading.Lock()  # one conflict at a time
        self._process: starting.ChildProcess | None = None
        self._closed = False
        self.spent = Spent()

    def distrust_records(self, resolve: bool) -> None:
        """From now on, records come from clients of a server.

        Without `resolve`, the clients resolve the conflicts themselves.
        """
        self.of_clients, self._are_left = True, not resolve

    def resolved(self, storage: Any, oid: bytes, committed_serial: bytes,
                 old_serial: bytes, new: bytes, committed: bytes) -> bytes:
        """The record that resolves a conflict of records from clients."""
        if self._are_left:
            leave(oid, committed_serial, old_serial, new)
        bare = storage._crs_untransform_record_data
        try:
            resolved: bytes = storage._crs_transform_record_data(
                self._by_process(
                    bare(storage.loadSerial(oid, old_serial)),
                    bare(committed
                         or storage.loadSerial(oid, committed_serial)),
                    bare(new)))
            return resolved
        except (POSKeyError, Unresolvable):
            leave(oid, committed_serial, old_serial, new)

    def _by_process(self, old: bytes, committed: bytes, new: bytes) -> bytes:
        records = old, committed, new
        if sum(map(len, records)) > MOST_OF_RECORDS:
            raise Unresolvable
        with self._lock:
            try:
                return self._answer({'records': [
                    base64.b64encode(each).decode() for each in records]})
            except _Ended as error:
                self._drop()
                if not self._closed:
                    self._tell(new, str(error))
                raise Unresolvable from None
            except Unresolvable as error:
                if error.args:
                    self._tell(new, error.args[0])
                raise
            except BaseException:
                self._drop()  # else the next caller would get this answer
                raise

    def _answer(self, job: dict[str, list[str]]) -> bytes:
        try:
            process = self._running()
            begun = time.monotonic()
            try:
                process.send(job)
                line = process.report(LONGEST_WAIT + IMPORTING + _PATIENCE)
            finally:
                self.spent.seconds = time.monotonic() - begun
        except (starting.NotStarted, starting.Silent, OSError) as error:
            raise _Ended(str(error)) from None
        if line is None:
            code = process.exit_code()
            raise _Ended(_TOO_LONG.get(code or 0, f'exit code {code}'))
        answer = json.loads(line)
        match answer:
            case {'imported': float(seconds)}:
                self.spent.seconds -= seconds
        match answer:
            case {'resolved': str(data)} if data:
                return base64.b64decode(data)
            case {'refused': None}:
                raise Unresolvable
            case {'refused': str(why)}:
                raise Unresolvable(why)
            case {'ended': str(why)}:
                raise _Ended(why)
        raise _Ended(f'its process said {line[:80]!r}')

    def _running(self) -> starting.ChildProcess:
        if self._closed:
            raise _Ended
        if self._process is None:
            if not starting.is_possible():
                raise starting.NotStarted('this program is no Python that'
                                          ' could be started once more')
            self._process = starting.ChildProcess(
                'fsyncstorage.storage.resolution', [])
            if self._closed:  # `close` may not have seen the process
                raise _Ended
            self._process.begin(dict(
                seconds=LONGEST, longest=LONGEST_WAIT, importing=IMPORTING,
                room=ROOM))
        return self._process

    def _tell(self, record: bytes, why: str) -> None:
        logger.warning(
            '%s: a conflict of an object of %s was not resolved: %s',
            self._name, class_name(record), why)

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def close(self) -> None:
        """Let the conflict that is being resolved fail."""
        self._closed = True
        process = self._process
        if process is not None:
            process.end()
        with self._lock:
            self._drop()


class UnpublishedView(View):
    """All that is in the file.  What is not published may be taken back."""

    __slots__ = ()

    keeps = False

    def __init__(self, view: View) -> None:
        super().__init__(view.file, view.index, sys.maxsize, view.tid)


def leave(oid: bytes, committed_serial: bytes, old_serial: bytes,
          record: bytes, committed_data: bytes = b'') -> NoReturn:
    """Refuse to resolve a conflict, and unpickle nothing for the error.

    This can take the place of `tryToResolveConflict` in any storage.
    """
    error = ConflictError(oid=oid, serials=(committed_serial, old_serial))
    error.class_name = class_name(record)
    try:
        raise error
    finally:
        # Its traceback has this frame, and with it the file of the vote, which
        # would stay open behind a pack, until cycles are collected.
        del error
