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

from .pickles import Reader
from .pickles import Unreadable

# An extension has 64 KB at most.
MOST_STEPS = 1 << 16
MOST_CONTAINERS = 200


def shown(pickle: bytes) -> dict[Any, Any]:
    """The dictionary in an extension."""
    try:
        value = _Shown(MOST_STEPS, MOST_CONTAINERS).load(pickle)
    except Unreadable:
        return {}
    return value if value.__class__ is dict else {}


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
