"""Who resolves a conflict.

In a server, the records come from its clients.  A process of its own resolves
the conflicts there (resolver), or the clients do.  Any other process resolves
them as stock does: it trusts its records, as it trusts all objects in the
file; and their classes may be known to it alone.

If a conflict cannot be resolved in a server, the error is made here: if ZODB's
ConflictError is given the record, it unpickles the beginning to name the
class.
"""

from typing import NoReturn

from ZODB.ConflictResolution import ConflictResolvingStorage
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError

from ..format.classes import class_name
from .resolver import Resolver
from .resolver import Unresolvable


class Conflicts(ConflictResolvingStorage):
    """Part of a storage."""

    _file_name: str
    #: None: records are trusted.
    _resolver: Resolver | None = None
    _leaves_conflicts = False

    def distrust_records(self, resolve: bool = True) -> None:
        """Called by a server: from now on, records come from clients.

        Without `resolve`, the clients resolve the conflicts themselves.
        """
        if self._resolver is None:
            self._resolver = Resolver(self._file_name)
        self._leaves_conflicts = not resolve

    def tryToResolveConflict(self, oid: bytes, committedSerial: bytes,
                             oldSerial: bytes, newpickle: bytes,
                             committedData: bytes = b'') -> bytes:
        if self._resolver is None:
            return super().tryToResolveConflict(
                oid, committedSerial, oldSerial, newpickle, committedData)
        if self._leaves_conflicts:
            leave(oid, committedSerial, oldSerial, newpickle)
        bare = self._crs_untransform_record_data
        try:
            return self._crs_transform_record_data(self._resolver.resolved(
                bare(self.loadSerial(oid, oldSerial)),
                bare(committedData or self.loadSerial(oid, committedSerial)),
                bare(newpickle)))
        except (POSKeyError, Unresolvable):
            leave(oid, committedSerial, oldSerial, newpickle)


def leave(oid: bytes, committed_serial: bytes, old_serial: bytes,
          record: bytes, committed_data: bytes = b'') -> NoReturn:
    """Refuse to resolve a conflict, and unpickle nothing for the error.

    This can take the place of `tryToResolveConflict` in any storage.
    """
    error = ConflictError(oid=oid, serials=(committed_serial, old_serial))
    error.class_name = class_name(record)
    raise error
