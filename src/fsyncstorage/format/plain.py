"""The plain values in messages of peers, and a few classes that clients of
stock send beside them; nothing is called (pickles)."""

from typing import Any

from . import pickles
from .pickles import Unreadable


class _Prefix:
    """A ZopeUndo.Prefix that has no state yet."""


class PlainReader(pickles.Reader):
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

    def name(self, module: bytes, name: bytes) -> Any:
        if (module, name) not in self._names:
            return super().name(module, name)
        self.unfinished += 1
        return self._names[module, name]

    def call(self, function: Any, arguments: Any) -> Any:
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

    def new(self, kind: Any, arguments: Any, /) -> Any:
        if kind is not _Prefix or arguments != ():
            raise Unreadable('an object')
        return _Prefix()

    def build(self, made: Any, state: Any, /) -> Any:
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


def _as_pair(item: Any) -> Any:
    if item.__class__ is not tuple or len(item) != 2:
        raise Unreadable('an item that is not a pair')
    return item
