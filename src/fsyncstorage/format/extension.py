"""The extension of a transaction, shown as plain data.

An extension is a pickle that a site has stored with its transaction, and
anybody may have made the file.  A program that shows a log of transactions
must not run code from the file, least of all a server: so nothing in the
pickle is imported or called.  Plain data, which is what sites store, are shown
as they are.  Objects are shown by the name of their class, so that a stock
client can read the result.  A pickle that cannot be read is shown as empty, as
in a FileStorage; and so is one that has a text in so many places that the
answer would be much longer than the pickle.
"""

from typing import Any

from .pickles import Reader
from .pickles import Unreadable

# An extension has 64 KB at most.
MOST_STEPS = 1 << 16
MOST_CONTAINERS = 200
# Characters of all texts and bytes, each counted as often as it is there.
MOST_CHARACTERS = 1 << 18


def shown(pickle: bytes) -> dict[Any, Any]:
    """The dictionary in an extension."""
    try:
        value = _Shown(MOST_STEPS, MOST_CONTAINERS).load(pickle)
    except Unreadable:
        return {}
    if value.__class__ is not dict or _characters(value) > MOST_CHARACTERS:
        return {}
    return value


def _characters(value: Any) -> int:
    count, left = 0, [value]
    while left:
        each = left.pop()
        if each.__class__ in (str, bytes):
            count += len(each)
        elif each.__class__ is dict:
            left += each.keys()
            left += each.values()
        elif each.__class__ in (list, tuple):
            left += each
    return count


class _Shown(Reader):
    """Puts the name of its class in the place of an object: what the object
    was made from, and its state, are dropped."""

    def again(self, value: Any) -> Any:
        return '...'  # it is shown elsewhere

    def extend(self, items: list[Any], target: Any) -> None:
        if target.__class__ is not str:
            super().extend(items, target)

    def update(self, items: list[Any], target: Any) -> None:
        if target.__class__ is not str:
            super().update(items, target)

    def name(self, module: bytes, name: bytes) -> Any:
        return f'{module.decode()}.{name.decode()}'

    def call(self, function: Any, arguments: Any) -> Any:
        return function

    new = build = call
