"""Which store a name means."""

import re

from . import objectstore
from .directory import Directory
from .store import Store
from .store import StoreError

_URL = re.compile(r'(\w+)://.*')


def opened(name: str) -> Store:
    """A directory, or the url of a store that obstore knows; StoreError."""
    url = _URL.fullmatch(name)
    if url is None:
        return Directory(name)
    if url[1] not in objectstore.SCHEMES:
        raise StoreError(f'{name}: the url of a store begins with one of'
                         f' {", ".join(objectstore.SCHEMES)}')
    return objectstore.opened(name)
