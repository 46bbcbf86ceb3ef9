"""The calls of the ZEO protocol, and the types of their arguments.

Until the type of an argument has been checked, nothing is done with it: it is
not looked up, compared, hashed, logged or stored.  A method of a session is
called only with arguments of the types that `REGISTERED` names.
"""

from ZODB.POSException import ConflictError
from ZODB.POSException import POSError
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadOnlyError

from ..format.pickles import LONGEST_TEXT
from ..pack.progress import Untimely

KEEP_ALIVE = -1

#: What a call may raise without a fault of the server, or of its disk: the
#: client is told, and nothing is logged.
REFUSALS = ConflictError, POSKeyError, ReadOnlyError, Untimely

# What a call may also raise because of what it was given: the server is sound,
# and a traceback would tell nothing.
_OF_A_CALL = POSError, ValueError, TypeError, LookupError, ArithmeticError

# Characters of a name: it is written to the log.
LONGEST_NAME = 1000

def traceback_of(error):
    """For the log: the error, if its traceback may tell something."""
    return None if isinstance(error, _OF_A_CALL) else error


# What an argument may be: its class -> its size, or ANY.  The size is the
# length of a text, of bytes or of a tuple, and of a number the number itself.

ANY = None
EIGHT = range(8, 9)
UP_TO_A_NAME = range(LONGEST_NAME + 1)
UP_TO_A_TEXT = range(LONGEST_TEXT + 1)

Kind = dict[type, range | None]

NONE: Kind = {type(None): ANY}
OID = TID = {bytes: EIGHT}
# For a new object it is zeros, as bytes or text, or an empty value.
SERIAL: Kind = {**NONE, bytes: EIGHT, str: EIGHT}
DATA = {bytes: ANY}
# Message ids, ids of transactions, counts.
NUMBER = {int: range(-1 << 63, 1 << 64)}
FLAG = {bool: ANY, int: range(2)}
NAME = {str: UP_TO_A_NAME}
# A user or a description; the vote fails if the text does not fit into the
# file.
TEXT = {str: UP_TO_A_TEXT, bytes: UP_TO_A_TEXT}
SHORT = {bytes: UP_TO_A_NAME}
TIME: Kind = {int: NUMBER[int], float: ANY}
# An extension; never bytes, which would be a pickle that the client has made.
MAPPING = {dict: ANY}
# The method looks at what is in it.
LIST = {list: ANY, tuple: ANY}


class Call:
    """The arguments of a method; the last `optional` ones may be left out."""

    def __init__(self, *kinds, optional=0):
        self.kinds = kinds
        self.needed = len(kinds) - optional

    def check(self, name, arguments):
        if not self.needed <= len(arguments) <= len(self.kinds):
            raise TypeError(f'{name} with {len(arguments)} arguments')
        for kind, argument in zip(self.kinds, arguments):
            of_class = argument.__class__
            if of_class in kind:
                sizes = kind[of_class]
                if sizes is ANY or (argument if of_class is int
                                    else len(argument)) in sizes:
                    continue
            raise TypeError(
                f'{name} with {_shown(argument)} in the place of'
                f' {" or ".join(each.__name__ for each in kind)}')


def _shown(argument):
    """Its type, for the log: the value may be anything."""
    length = len(argument) if hasattr(argument, '__len__') else ''
    return f'{type(argument).__name__} {length}'.rstrip()


def is_oid(value):
    """Or a tid."""
    return value.__class__ is bytes and len(value) == 8


def is_number(value):
    return value.__class__ is int and value in NUMBER[int]


# Stock clients use `(oid, tid)` as the message id of a load.
_LOAD = Call(OID, TID)


def parts(message):
    """The message id, flags, name and arguments, or a TypeError."""
    if message.__class__ is not tuple or len(message) != 4:
        raise TypeError('a message that is not a call')
    message_id, flags, name, arguments = message
    if message_id.__class__ is tuple:
        _LOAD.check('the id of a message', message_id)
    elif message_id.__class__ is not int or message_id not in NUMBER[int]:
        raise TypeError('a message without an id')
    if (flags.__class__ not in FLAG or flags not in (0, 1)
            or name.__class__ is not str or len(name) > LONGEST_NAME):
        raise TypeError('a message that does not begin as a call does')
    if arguments.__class__ is not tuple and message_id != KEEP_ALIVE:
        raise TypeError(f'a call of {name!r:.50} without arguments')
    return message


#: What a client may call before it has registered, and after that.
UNREGISTERED = {
    'register': Call(NAME, FLAG),  # the storage, read-only
}
REGISTERED = {
    'get_info': Call(),
    'lastTransaction': Call(),
    'getInvalidations': Call(TID),
    'ping': Call(),
    'server_status': Call(),
    'set_client_label': Call(NAME),
    # Reading
    'loadBefore': Call(OID, TID),
    'loadSerial': Call(OID, TID),
    'getTid': Call(OID),
    'sendBlob': Call(OID, TID),
    # Without an oid it is answered as stock does: there is no such object.
    'history': Call({**NONE, **OID}, {**NONE, **NUMBER}, optional=1),
    'record_iternext': Call({**NONE, **OID}, optional=1),
    'undoLog': Call(NUMBER, NUMBER),
    'undoInfo': Call(NUMBER, NUMBER, {**NONE, **MAPPING}),
    'iterator_start': Call({**NONE, **TID}, {**NONE, **TID}),
    'iterator_next': Call(NUMBER),
    'iterator_record_start': Call(NUMBER, TID),
    'iterator_record_next': Call(NUMBER),
    'iterator_gc': Call(LIST),
    # Writing; the last argument is the id of the transaction
    'new_oid': Call(),
    'new_oids': Call(NUMBER, optional=1),
    'pack': Call(TIME, FLAG, optional=1),
    'tpc_begin': Call(NUMBER, TEXT, TEXT, {**NONE, **MAPPING},
                      {**NONE, **TID}, NAME, optional=2),
    'storea': Call(OID, SERIAL, DATA, NUMBER),
    'restorea': Call(OID, TID, {**NONE, **DATA}, {**NONE, **TID},
                     NUMBER),
    'deleteObject': Call(OID, TID, NUMBER),
    'checkCurrentSerialInTransaction': Call(OID, TID, NUMBER),
    'undoa': Call(SHORT, NUMBER),
    'storeBlobStart': Call(),
    'storeBlobChunk': Call(DATA),
    'storeBlobEnd': Call(OID, SERIAL, DATA, NUMBER),
    'storeBlobShared': Call(OID, SERIAL, DATA, NAME, NUMBER),
    'vote': Call(NUMBER),
    'tpc_finish': Call(NUMBER),
    'tpc_abort': Call(NUMBER),
}

# Those that store something, and how many of their arguments are of that; the
# next one is the id of the transaction.
OF_A_TRANSACTION = {
    'storea': 3,
    'restorea': 4,
    'deleteObject': 2,
    'checkCurrentSerialInTransaction': 2,
    'undoa': 1,
    'storeBlobStart': 0,
    'storeBlobChunk': 1,
    'storeBlobEnd': 3,
    'storeBlobShared': 4,
}

#: What a client of ours may call by name; what is frequent, or belongs to a
#: transaction, has frames of its own (wire.frames).
OF_OURS = {
    'pack_status': Call(),
    'pack_cancel': Call(),
    'pack_forecast': Call(TIME),
    'about_client': Call(FLAG),  # it reads locally
    **{name: REGISTERED[name] for name in (
        'pack', 'server_status', 'lastTransaction', 'loadSerial', 'getTid',
        'history', 'record_iternext', 'undoLog', 'undoInfo', 'iterator_start',
        'iterator_next', 'iterator_record_start', 'iterator_record_next',
        'iterator_gc', 'new_oids')},
}
