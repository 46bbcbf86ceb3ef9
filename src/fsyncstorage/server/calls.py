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

# Message ids, ids of transactions, counts.
_NUMBERS = range(-1 << 63, 1 << 64)


def traceback_of(error):
    """For the log: the error, if its traceback may tell something."""
    return None if isinstance(error, _OF_A_CALL) else error


def parts(message):
    """Message id, flags, name and arguments of a message."""
    if message.__class__ is not tuple or len(message) != 4:
        raise ValueError('a message that is not a call')
    message_id, flags, name, arguments = message
    if not is_message_id(message_id) or not is_flag(flags) or not is_name(
            name):
        raise ValueError('a message that does not begin as a call does')
    if arguments.__class__ is not tuple and message_id != KEEP_ALIVE:
        raise ValueError(f'a call of {name!r:.50} without arguments')
    return message


# What an argument may be

def is_oid(value):
    return value.__class__ is bytes and len(value) == 8


is_tid = is_oid


def is_serial(value):
    """For a new object it is zeros, as bytes or text, or an empty value."""
    return value is None or (
        value.__class__ in (bytes, str) and len(value) == 8)


def is_data(value):
    return value.__class__ is bytes


def is_number(value):
    return value.__class__ is int and value in _NUMBERS


def is_message_id(value):
    """A number; stock clients use `(oid, tid)` for a load."""
    return is_number(value) or (
        value.__class__ is tuple and len(value) == 2
        and is_oid(value[0]) and is_tid(value[1]))


def is_flag(value):
    return value.__class__ in (bool, int) and value in (0, 1)


def is_name(value):
    return value.__class__ is str and len(value) <= LONGEST_NAME


def is_text(value):
    """A user or a description; the vote fails if the text does not fit into
    the file."""
    return value.__class__ in (str, bytes) and len(value) <= LONGEST_TEXT


def is_short(value):
    return value.__class__ is bytes and len(value) <= LONGEST_NAME


def is_time(value):
    return value.__class__ is float or is_number(value)


def is_mapping(value):
    """An extension; never bytes, which would be a pickle that the client has
    made."""
    return value.__class__ is dict


def is_numbers(value):
    return value.__class__ in (list, tuple) and all(map(is_number, value))


def or_none(is_kind):

    def is_kind_or_none(value):
        return value is None or is_kind(value)

    is_kind_or_none.__name__ = is_kind.__name__ + '_or_none'
    return is_kind_or_none


class Call:
    """The arguments of a method; the last `optional` ones may be left out."""

    def __init__(self, *kinds, optional=0):
        self.kinds = kinds
        self.needed = len(kinds) - optional

    def check(self, name, arguments):
        kinds = self.kinds
        if not self.needed <= len(arguments) <= len(kinds):
            raise TypeError(f'{name} with {len(arguments)} arguments')
        for is_kind, argument in zip(kinds, arguments):
            if not is_kind(argument):
                raise TypeError(f'{name} with {_shown(argument)}, where'
                                f' {is_kind.__name__} is false')


def _shown(argument):
    """Its type, for the log: the value may be anything."""
    length = len(argument) if hasattr(argument, '__len__') else ''
    return f'{type(argument).__name__} {length}'.rstrip()


#: What a client may call before it has registered, and after that.
UNREGISTERED = {
    'register': Call(is_name, is_flag),  # the storage, read-only
}
OURS = {  # calls that ZEO does not have
    'alive': Call(),
    'pack_status': Call(),
    'pack_cancel': Call(),
    'pack_forecast': Call(is_time),
    'about_client': Call(is_name, is_flag),  # its version, reads locally
}
REGISTERED = {
    **OURS,
    'get_info': Call(),
    'lastTransaction': Call(),
    'getInvalidations': Call(is_tid),
    'ping': Call(),
    'server_status': Call(),
    'set_client_label': Call(is_name),
    # Reading
    'loadBefore': Call(is_oid, is_tid),
    'loadSerial': Call(is_oid, is_tid),
    'getTid': Call(is_oid),
    'sendBlob': Call(is_oid, is_tid),
    # Without an oid it is answered as stock does: there is no such object.
    'history': Call(or_none(is_oid), or_none(is_number), optional=1),
    'record_iternext': Call(or_none(is_oid), optional=1),
    'undoLog': Call(is_number, is_number),
    'undoInfo': Call(is_number, is_number, or_none(is_mapping)),
    'iterator_start': Call(or_none(is_tid), or_none(is_tid)),
    'iterator_next': Call(is_number),
    'iterator_record_start': Call(is_number, is_tid),
    'iterator_record_next': Call(is_number),
    'iterator_gc': Call(is_numbers),
    # Writing; the last argument is the id of the transaction
    'new_oid': Call(),
    'new_oids': Call(is_number, optional=1),
    'pack': Call(is_time, is_flag, optional=1),
    'tpc_begin': Call(is_number, is_text, is_text, or_none(is_mapping),
                      or_none(is_tid), is_name, optional=2),
    'storea': Call(is_oid, is_serial, is_data, is_number),
    'restorea': Call(is_oid, is_tid, or_none(is_data), or_none(is_tid),
                     is_number),
    'deleteObject': Call(is_oid, is_tid, is_number),
    'checkCurrentSerialInTransaction': Call(is_oid, is_tid, is_number),
    'undoa': Call(is_short, is_number),
    'storeBlobStart': Call(),
    'storeBlobChunk': Call(is_data),
    'storeBlobEnd': Call(is_oid, is_serial, is_data, is_number),
    'storeBlobShared': Call(is_oid, is_serial, is_data, is_name, is_number),
    'vote': Call(is_number),
    'tpc_finish': Call(is_number),
    'tpc_abort': Call(is_number),
}

# The calls that a commit channel accepts, and how many of their arguments it
# uses.  A further one, the id of the transaction, is dropped.
BEGIN = {
    'tpc_begin': 6,
}
OF_A_TRANSACTION = {
    'storea': 3,  # only if oid, serial and data do not fit into a store frame
    'restorea': 4,
    'deleteObject': 2,
    'checkCurrentSerialInTransaction': 2,
    'undoa': 1,
    'storeBlobStart': 0,
    'storeBlobChunk': 1,
    'storeBlobEnd': 3,
    'storeBlobShared': 4,
}


def checked(name, arguments, wanted):
    """The arguments that are used, once their types are checked."""
    REGISTERED[name].check(name, arguments)
    if len(arguments) < wanted[name]:
        raise TypeError(f'{name} with {len(arguments)} arguments')
    return arguments[:wanted[name]]
