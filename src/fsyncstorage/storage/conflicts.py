"""Who resolves a conflict.

In a server, the records come from its clients.  A process of its own resolves
the conflicts there (resolver), or the clients do.  Any other process resolves
them as stock does: it trusts its records, as it trusts all objects in the
file; and their classes may be known to it alone.

If a conflict cannot be resolved in a server, the error is made here: if ZODB's
ConflictError is given the record, it unpickles the beginning to name the
class.
"""

import sys
from typing import Any
from typing import NoReturn

from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError

from ..format.classes import class_name
from ..format.view import View
from .resolver import Resolver
from .resolver import Unresolvable


class Conflicts:
    """Those of one storage."""

    def __init__(self, name: str) -> None:
        self._name = name
        #: None: records are trusted.
        self.resolver: Resolver | None = None
        self._are_left = False

    def distrust_records(self, resolve: bool) -> None:
        """From now on, records come from clients of a server.

        Without `resolve`, the clients resolve the conflicts themselves.
        """
        if self.resolver is None:
            self.resolver = Resolver(self._name)
        self._are_left = not resolve

    def resolved(self, storage: Any, oid: bytes, committed_serial: bytes,
                 old_serial: bytes, new: bytes, committed: bytes) -> bytes:
        """The record that resolves a conflict of records from clients."""
        assert self.resolver is not None
        if self._are_left:
            leave(oid, committed_serial, old_serial, new)
        bare = storage._crs_untransform_record_data
        try:
            resolved: bytes = storage._crs_transform_record_data(
                self.resolver.resolved(
                    bare(storage.loadSerial(oid, old_serial)),
                    bare(committed
                         or storage.loadSerial(oid, committed_serial)),
                    bare(new)))
            return resolved
        except (POSKeyError, Unresolvable):
            leave(oid, committed_serial, old_serial, new)

    def close(self) -> None:
        """Let the conflict that is being resolved fail."""
        if self.resolver is not None:
            self.resolver.close()


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
    raise error
