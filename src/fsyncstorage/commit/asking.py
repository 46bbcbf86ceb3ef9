"""A transaction that asks for more durability than its storage gives.

It asks in its extension, which `durability` sets::

    fsyncstorage.durability('group-commit')

The value is the name of a policy.  If that is more than the policy of the
storage, the transaction is *promised*: it is published and acknowledged only
when it is durable, and everything before it is durable, too.  A transaction
that asks for less gets the policy of the storage.

A transaction that asks for more than it would get is refused when it begins.
So is one whose value is no policy: it may be a mistyped name.  And `quorum` is
more than all other policies, but in a storage without it no transaction can
have it, because a log has either everything before a transaction, or nothing.

The request is not stored: in the file, the extension equals that of the same
transaction without a request, byte for byte.

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
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import transaction
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import StorageTransactionError

from .policies import POLICIES
from .policies import QUORUM
from .policies import Policy
from .policies import policy_named

KEY = 'durability'
NAMES = *POLICIES, QUORUM.name
# The error shows this many characters of a value.
LONGEST_SHOWN = 40

_BESIDE = 'asked_for_durability'
# This property unpickles an extension that was given as bytes.
_UNPICKLES = TransactionMetaData.extension


class Asked(NamedTuple):

    #: The name of a policy; or of another value, what an error shows of it.
    what: str
    #: The extension without the request, as it is stored.
    extension: bytes

    @property
    def size(self) -> int:
        """Bytes that are kept for the request."""
        return len(self.extension)

    def heeded(self, own: Policy) -> tuple[Policy, bytes]:
        """The policy and the extension of the transaction; `own` is the policy
        of the storage."""
        if self.what not in NAMES:
            raise StorageTransactionError(
                f'the transaction has {self.what} as its durability, which is'
                f' no policy: these are {", ".join(NAMES)}')
        policy = policy_named(self.what)
        if policy.replicated and not own.replicated:
            raise StorageTransactionError(
                f'the transaction asks for durability {self.what}, which a'
                f' storage has for all or for none; this one has {own.name}')
        if policy.is_more_than(own) and not own.promises:
            # The storage decides how syncs are shared, and how many a commit
            # takes: any policy that is more just means durable.
            return POLICIES['group-commit'], self.extension
        return own, self.extension


def durability(policy: str, of: Any = None) -> None:
    """Let a transaction ask for this policy.

    `of` is the transaction; by default, it is that of this thread.
    ValueError: there is no such policy.
    """
    name = policy_named(policy).name
    (transaction.get() if of is None else of).setExtendedInfo(KEY, name)


def asked(metadata: Any) -> Asked | None:
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
    return beside if isinstance(beside, Asked) else None


def asked_in(extension: dict[Any, Any] | None) -> Asked | None:
    """The same, for the extension that a client sends."""
    if not extension or KEY not in extension:
        return None
    value = extension[KEY]
    if value.__class__ is not str:
        what = f'a {type(value).__name__:.{LONGEST_SHOWN}}'
    else:
        what = value if value in NAMES else repr(value[:LONGEST_SHOWN])
    rest = copy.copy(extension)
    del rest[KEY]
    return Asked(what, encoded(rest))


def put_beside(metadata: Any, what: Asked) -> None:
    """Tell a storage that gets the extension as bytes."""
    setattr(metadata, _BESIDE, what)


def encoded(extension: dict[Any, Any] | None) -> bytes:
    """An extension as it is stored."""
    if not extension:
        return b''
    data: bytes = TransactionMetaData(extension=extension).extension_bytes
    return data
