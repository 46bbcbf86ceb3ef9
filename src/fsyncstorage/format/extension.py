"""The extension of a transaction, shown as plain data.

An extension is a pickle that a site has stored with its transaction, and
anybody may have made the file.  A program that shows a log of transactions
must not run code from the file, least of all a server: so nothing in the
pickle is imported or called.  Plain data, which is what sites store, are shown
as they are.  Objects are shown by the name of their class, so that a stock
client can read the result.  A pickle that cannot be read is shown as empty, as
in a FileStorage.
"""

from typing import Any

from . import plainpickle
from .plainpickle import Unreadable

# An extension has 64 KB at most.
MOST_STEPS = 1 << 16
MOST_CONTAINERS = 200

# REDUCE, NEWOBJ, BUILD
_DROPPING = 0x52, 0x81, 0x62


def shown(pickle: bytes) -> dict[Any, Any]:
    """The dictionary in an extension."""
    try:
        value = _Reader(MOST_STEPS, MOST_CONTAINERS).load(pickle)
    except Unreadable:
        return {}
    return value if value.__class__ is dict else {}


class _Reader(plainpickle.Reader):
    """Also reads older pickles, and replaces objects by names."""

    def _text(self, length: int) -> None:
        """A str of Python 2."""
        text = self._take(length)
        self._stack.append(text.decode() if text.isascii() else text)

    def _int(self) -> None:
        line = self._take_line()
        self._stack.append(
            line == b'01' if line in (b'00', b'01') else _number(line))

    def _long(self) -> None:
        self._stack.append(_number(self._take_line().rstrip(b'L')))

    # Objects

    def _global(self) -> None:
        module, name = self._take_line(), self._take_line()
        self._stack.append(f'{module.decode()}.{name.decode()}')

    def _inst(self) -> None:
        self._from_mark()
        self._global()

    def _obj(self) -> None:
        self._stack.append(self._from_mark()[0])

    def _extend(self, items: list[Any]) -> None:
        if self._stack[-1].__class__ is not str:
            super()._extend(items)

    def _update(self, items: list[Any]) -> None:
        if self._stack[-1].__class__ is not str:
            super()._update(items)

    def _put(self, number: int) -> None:
        super()._put(number)
        self._memo.setdefault(number, '...')  # it is shown elsewhere

    opcodes = {
        **plainpickle.Reader.opcodes,
        0x55: lambda self: self._text(self._take_byte()),    # SHORT_BINSTRING
        0x54: lambda self: self._text(self._take_length()),  # BINSTRING
        0x49: _int, 0x4c: _long,
        0x63: _global, 0x69: _inst, 0x6f: _obj,
        # Arguments and states are dropped: the name stays.
        **dict.fromkeys(_DROPPING, lambda self: self._stack.pop()),
    }


def _number(line: bytes) -> int:
    if len(line) > 2 * plainpickle.LONGEST_NUMBER:
        raise Unreadable(f'a whole number of {len(line)} digits')
    return int(line)
