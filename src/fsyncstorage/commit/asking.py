"""A transaction that asks for more durability than its storage gives.

It asks in its extension::

    transaction.get().setExtendedInfo('durability', 'group-commit')

The value is the name of a policy.  If that is more than the policy of the
storage, the transaction is *promised*: it is published and acknowledged when
it is durable, and so is everything before it.  What asks for less, or for
something that is no policy, is kept as the storage keeps all others.

The question is not stored: in the file, the extension is that of the same
transaction without the question, byte for byte.

Nothing is unpickled for this.  Only an extension that is a dictionary when it
comes is searched.  A server has decoded the extension of its client, and hands
on the bytes of it; so it puts what was asked beside them (`put_beside`).  Any
other bytes are stored as they are.

Left to others: what a policy promises (policies); that the promise is kept,
and which transactions are copies, which ask for nothing (storage.commits,
storage.transaction).
"""

import logging
import threading
from typing import Any
from typing import NamedTuple

from ZODB.Connection import TransactionMetaData

from .policies import POLICIES
from .policies import Policy

logger = logging.getLogger(__name__)

KEY = 'durability'
# Characters that are kept of a name: more than that of any policy has.
LONGEST_NAME = 40

_BESIDE = 'asked_for_durability'

# Each is taken by the first in this process that writes the line.
_said_of_less = threading.Lock()
_said_of_no_policy = threading.Lock()


class Asked(NamedTuple):

    #: Of a policy; or what was given in the place of one.
    name: str
    #: The extension without the question, as it is stored.
    extension: bytes

    def policy(self, own: Policy) -> Policy:
        """The policy of the transaction, in a storage whose own is this."""
        policy = POLICIES.get(self.name)
        if policy is None:
            if _said_of_no_policy.acquire(blocking=False):
                logger.warning(
                    'a transaction asked for durability %r, which is no'
                    ' policy: it is kept as %s keeps all', self.name, own.name)
        elif policy.is_more_than(own):
            # How syncs are shared, and how many a commit takes, is the affair
            # of the storage: all that is more means durable.
            return POLICIES['group-commit']
        elif own.is_more_than(policy) and _said_of_less.acquire(
                blocking=False):
            logger.info(
                'a transaction asked for durability %s, which is less than'
                ' %s: it is kept as %s keeps all',
                self.name, own.name, own.name)
        return own


def asked(metadata: Any) -> Asked | None:
    """What a transaction asks for; None: nothing."""
    given = vars(metadata)
    extension = given.get('extension')
    if extension.__class__ is dict:
        return asked_in(extension)
    beside = given.get(_BESIDE)
    return beside if isinstance(beside, Asked) else None


def asked_in(extension: dict[Any, Any]) -> Asked | None:
    if KEY not in extension:
        return None
    rest = dict(extension)
    name = rest.pop(KEY)
    return Asked(
        name[:LONGEST_NAME] if name.__class__ is str
        else f'a {type(name).__name__:.{LONGEST_NAME}}',
        encoded(rest))


def put_beside(metadata: Any, what: Asked) -> None:
    """Tell a storage that gets the extension as bytes."""
    setattr(metadata, _BESIDE, what)


def encoded(extension: dict[Any, Any]) -> bytes:
    """An extension as it is stored."""
    if not extension:
        return b''
    data: bytes = TransactionMetaData(extension=extension).extension_bytes
    return data
