"""A transaction that asks for more durability than its storage gives.

It asks in its extension::

    transaction.get().setExtendedInfo('durability', 'group-commit')

The value is the name of a policy.  If that is more than the policy of the
storage, the transaction is *promised*: it is published and acknowledged only
when it is durable, and everything before it is durable, too.  A transaction
that asks for less gets the policy of the storage.

`quorum` is more than all other policies.  In a storage with it, no transaction
can have less.  In any other storage no transaction can have `quorum`, because
a log has either everything before a transaction, or nothing.  One that asks
for it is promised as above, which is the most that the storage can do, and a
line in the log says so.

The request is not stored: in the file, the extension equals that of the same
transaction without a request, byte for byte.

A value that is not the name of a policy is not a request.  An application may
have kept its own data under this key for years: so the value is stored, and
shown, like everything else in an extension.  But it may also be a mistyped
name: so there is a line in the log.

Nothing is unpickled for this.  An extension is searched only if it was given
as a dictionary.  (Reading `extension` of ZODB's metadata would unpickle bytes,
so it is not read then.)  A server of ours has decoded the extension of its
client, but passes its bytes on; so it puts the request beside the bytes
(`put_beside`).  Any other bytes are stored as they are.

Left to others: what a policy promises (policies); that the promise is kept,
and which transactions are copies, which ask for nothing (storage.commits,
storage.transaction).
"""

import copy
import logging
import threading
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

from ZODB.Connection import TransactionMetaData

from .policies import POLICIES
from .policies import QUORUM
from .policies import Policy
from .policies import policy_named

logger = logging.getLogger(__name__)

KEY = 'durability'
# The log shows this many characters of a value.
LONGEST_SHOWN = 40
# One process logs lines about this many different values.
MOST_SHOWN = 10

_BESIDE = 'asked_for_durability'
# This property unpickles an extension that was given as bytes.
_UNPICKLES = TransactionMetaData.extension

# Whichever thread of this process takes such a lock first writes the line.
_said_of_less = threading.Lock()
_said_of_quorum = threading.Lock()


class _Shown:
    """The values in the log that are not the name of a policy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: set[str] = set()

    def is_new(self, value: str) -> bool:
        with self._lock:
            if value in self._values or len(self._values) == MOST_SHOWN:
                return False
            self._values.add(value)
            return True


_shown = _Shown()


class Asked(NamedTuple):

    name: str
    #: The extension without the request, as it is stored.
    extension: bytes

    @property
    def size(self) -> int:
        """Bytes that are kept for the request."""
        return len(self.extension)

    def heeded(self, own: Policy, extension: bytes,
               file_name: str) -> tuple[Policy, bytes]:
        """The policy and the extension of the transaction.

        `own` is the policy of the storage, `extension` the one that came.
        """
        policy = policy_named(self.name)
        if (policy.replicated and not own.replicated
                and _said_of_quorum.acquire(blocking=False)):
            logger.warning(
                '%s: a transaction asked for durability %s, which a storage'
                ' has for all or for none: it is durable on this disk only',
                file_name, self.name)
        if policy.is_more_than(own) and not own.promises:
            # The storage decides how syncs are shared, and how many a commit
            # takes: any policy that is more just means durable.
            return POLICIES['group-commit'], self.extension
        if own.is_more_than(policy) and _said_of_less.acquire(blocking=False):
            logger.info(
                'a transaction asked for durability %s, which is less than'
                ' %s: it is kept as %s keeps all',
                self.name, own.name, own.name)
        return own, self.extension


class NoPolicy(NamedTuple):
    """The value under the key is not a request."""

    #: What the log shows of it.
    value: str

    @property
    def size(self) -> int:
        return 0

    def heeded(self, own: Policy, extension: bytes,
               file_name: str) -> tuple[Policy, bytes]:
        """As that of Asked: nothing is changed."""
        if _shown.is_new(self.value):
            logger.warning(
                '%s: a transaction has %.40r as its durability, which is no'
                ' policy: it is kept as %s keeps all, and this is stored with'
                ' it', file_name, self.value, own.name)
        return own, extension


Found: TypeAlias = Asked | NoPolicy


def asked(metadata: Any) -> Found | None:
    """What a transaction asks for; None if it asks for nothing."""
    given: Mapping[str, Any] = getattr(metadata, '__dict__', {})
    if 'extension' in given:
        extension = given['extension']
    elif getattr(type(metadata), 'extension', None) is _UNPICKLES:
        extension = None
    else:
        extension = getattr(metadata, 'extension', None)
    if isinstance(extension, dict):
        return asked_in(extension)
    beside = given.get(_BESIDE)
    return beside if isinstance(beside, Asked | NoPolicy) else None


def asked_in(extension: dict[Any, Any] | None) -> Found | None:
    """The same, for the extension that a client sends."""
    if not extension or KEY not in extension:
        return None
    value = extension[KEY]
    if value.__class__ is not str:
        return NoPolicy(f'a {type(value).__name__}'[:LONGEST_SHOWN])
    if value not in POLICIES and value != QUORUM.name:
        return NoPolicy(value[:LONGEST_SHOWN])
    rest = copy.copy(extension)
    del rest[KEY]
    return Asked(value, encoded(rest))


def put_beside(metadata: Any, what: Found) -> None:
    """Tell a storage that gets the extension as bytes."""
    setattr(metadata, _BESIDE, what)


def encoded(extension: dict[Any, Any] | None) -> bytes:
    """An extension as it is stored."""
    if not extension:
        return b''
    data: bytes = TransactionMetaData(extension=extension).extension_bytes
    return data
