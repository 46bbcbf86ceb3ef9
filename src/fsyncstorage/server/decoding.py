"""A client's messages, decoded: plain data, or an error.

A message may come from anybody, and ZEO's own decoder gives a pickle access to
all of `builtins`.  The decoder here calls nothing: it makes plain data, and
the few classes below that stock clients send.  It takes at most the memory of
the message plus a constant, and time in proportion: docs/internals/server.rst
has a table of the bounds, which are close until the client has registered.

Left to others: whether the message is a call, and of which method (calls).
"""

import functools
import io

from ZEO.asyncio import marshal
from zodbpickle import pickle

from ..format import pickles
from ..format.pickles import Unreadable

# A little more than `register` needs.
FEW_STEPS = 64
FEW_CONTAINERS = 4

# An extension of a transaction may hold some, and `iterator_gc` a long list.
MOST_STEPS = 10000
MOST_CONTAINERS = 100
LONGEST_ARRAY = 1 << 12


def decoder(encoding, registered):
    """The decoder of a client of this encoding, `b'Z'` or `b'M'`."""
    if encoding == b'M':
        import msgpack  # only clients of this encoding need it
        return functools.partial(
            _decode_msgpack, msgpack.unpackb,
            MOST_CONTAINERS if registered else FEW_CONTAINERS)
    if registered:
        return _Reader(MOST_STEPS, MOST_CONTAINERS).load
    return _Reader(FEW_STEPS, FEW_CONTAINERS).load


class _Prefix:
    """A ZopeUndo.Prefix that has no state yet."""


class _Reader(pickles.Reader):
    """Also reads sets and dictionaries that are made by a call, as in an
    extension; and ZopeUndo's Prefix, with which Zope searches for transactions
    that can be undone: a Prefix equals any path that begins with it."""

    #: Stock's picklers write no others.  (Some of the rest may take many times
    #: their bytes: a number or a text that is written in digits or escapes.)
    rare = pickles.rare_opcodes((
        'BININT', 'BININT2', 'BINFLOAT', 'LONG_BINPUT', 'LONG_BINGET',
        'EMPTY_LIST', 'EMPTY_DICT', 'GLOBAL', 'REDUCE', 'NEWOBJ', 'BUILD'))

    _names = {
        (b'builtins', b'set'): set,
        (b'builtins', b'frozenset'): frozenset,
        (b'builtins', b'dict'): dict,
        (b'ZopeUndo.Prefix', b'Prefix'): _Prefix,
    }

    def name(self, module, name):
        if (module, name) not in self._names:
            return super().name(module, name)
        self.unfinished += 1
        return self._names[module, name]

    def call(self, function, arguments):
        if arguments.__class__ is not tuple or len(arguments) != 1:
            raise Unreadable('a call')
        keys = items = arguments[0]
        if items.__class__ not in (list, tuple):
            raise Unreadable('a call whose argument is not a list')
        if function is dict:
            keys = [key for key, _ in map(_as_pair, items)]
        elif function not in (set, frozenset):
            raise Unreadable('a call of something other than a set')
        if not all(map(pickles.is_good_key, keys)):
            raise Unreadable('an invalid key')
        self.unfinished -= 1
        return self.counted(function(items))

    def new(self, kind, arguments):
        if kind is not _Prefix or arguments != ():
            raise Unreadable('an object')
        return _Prefix()

    def build(self, made, state):
        if made.__class__ is not _Prefix or state.__class__ is not dict:
            raise Unreadable('the state of an object')
        path = state.get('path')
        if path.__class__ is not list or not all(
                part.__class__ is str for part in path):
            raise Unreadable('an invalid path')
        if sum(map(len, path)) > pickles.LONGEST_TEXT:  # one part many times
            raise Unreadable('a long path')
        self.unfinished -= 1
        from ZopeUndo.Prefix import Prefix  # Zope needs it to be installed
        return Prefix('/'.join(path))


def _as_pair(item):
    if item.__class__ is not tuple or len(item) != 2:
        raise Unreadable('an item that is not a pair')
    return item


def _decode_msgpack(unpack, containers, message):

    def count(container):
        nonlocal containers
        containers -= 1
        if containers < 0:
            raise Unreadable('too many arrays and maps')
        return container

    # (Keys are texts or bytes: that is what `strict_map_key` means.)
    return unpack(
        message, raw=False, use_list=False, strict_map_key=True,
        list_hook=count, object_hook=count, ext_hook=_refuse_extension,
        max_array_len=LONGEST_ARRAY, max_map_len=LONGEST_ARRAY,
        max_str_len=pickles.LONGEST_TEXT, max_ext_len=0)


def _refuse_extension(code, data):
    raise Unreadable(f'an extension type {code}')


def encoder(handshake):
    """Makes messages to this peer, with the bytes that ZEO's encoder gives
    them.  (ZEO's own keeps a copy of each message until the next one.)"""
    if handshake[:1] == b'M':
        return marshal.encoder(handshake, True)

    def encode(*parts):
        file = io.BytesIO()
        pickler = pickle.Pickler(file, 3)
        pickler.fast = True
        pickler.dump(parts)
        return file.getvalue()

    return encode
