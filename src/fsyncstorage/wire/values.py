"""Values of any plain type within a frame: arguments, results, errors.

They are pickles, which `format.plain` takes apart: it makes None, numbers,
texts, bytes, tuples, lists and dictionaries, and calls nothing.
"""

import io
from typing import Any

from ZEO.shortrepr import short_repr
from zodbpickle import pickle

from ..format.pickles import Unreadable
from ..format.plain import PlainReader
from .frames import CallerError
from .frames import PeerError

# What a server says at most: a list of transactions is cut before that.
MOST_STEPS = 1 << 20
MOST_CONTAINERS = 1 << 17


def encoded(value: Any) -> bytes:
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 3)
    pickler.fast = True  # without a memo: nothing is in two places
    try:
        pickler.dump(value)
    except (pickle.PicklingError, TypeError, ValueError, AttributeError,
            RecursionError) as error:
        raise CallerError(f'a value without encoding: {error}') from error
    return file.getvalue()


def decoded(data: bytes, kind: type = object, steps: int = MOST_STEPS,
            containers: int = MOST_CONTAINERS) -> Any:
    """The value, of this class; PeerError if it is of another, or none."""
    try:
        value = PlainReader(steps, containers).load(data)
    except Unreadable as error:
        raise PeerError(str(error)) from error
    if not isinstance(value, kind):
        raise PeerError(f'{type(value).__name__} in the place of'
                        f' {kind.__name__}')
    return value


def plain(value: Any) -> Any:
    """The same, with a text in the place of anything that is not plain."""
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, list):
        return list(map(plain, value))
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    return short_repr(value)
