"""A store of S3, Google Cloud Storage or Azure, through `obstore`.

obstore tries each request again for a while.  So a create whose answer was
lost may find its own object: then it is Exists, like any other.

Its errors are pages of text: here they are the first line, and the reason of
the system, if there is one.
"""

import contextlib
import datetime
import os
import re
from collections.abc import Iterator
from typing import Any

from .store import LARGEST
from .store import Entry
from .store import Exists
from .store import Missing
from .store import StoreError
from .store import TooLarge

SCHEMES = 's3', 'gs', 'az'

#: A large object on a slow line needs its time.
_CLIENT = {'timeout': '600s', 'connect_timeout': '10s'}
#: obstore's own name: "true" where a store of one's own speaks plain HTTP.
_ALLOW_HTTP = 'AWS_ALLOW_HTTP'
_RETRIES = {'max_retries': 4, 'retry_timeout': datetime.timedelta(minutes=1)}
# The reason of the system, deep in an error.
_REASON = re.compile(r'message: "([^"\n]{1,100})"')


def opened(url: str, **options: Any) -> 'ObjectStore':
    """The store of a url; its keys come from the environment, as for the tools
    of its provider."""
    try:
        from obstore import store
    except ImportError:
        raise StoreError(f'{url} needs obstore: install'
                         ' fsyncstorage[backup]') from None
    client = {**_CLIENT, **options.pop('client_options', {})}
    if os.environ.get(_ALLOW_HTTP) == 'true':
        client['allow_http'] = True
    with _errors(url):
        made: Any = store.from_url(
            url, client_options=client,
            retry_config=options.pop('retry_config', _RETRIES), **options)
        return ObjectStore(made, url)


class ObjectStore:

    def __init__(self, store: Any, name: str) -> None:
        """`store` is one of obstore."""
        import obstore
        self.name = name
        self._store = store
        self._do = obstore

    def create(self, key: str, data: bytes) -> None:
        with _errors(key):
            self._do.put(self._store, key, data, mode='create',
                         use_multipart=False)

    def overwrite(self, key: str, data: bytes) -> None:
        with _errors(key):
            self._do.put(self._store, key, data, use_multipart=False)

    def get(self, key: str) -> bytes:
        with _errors(key):
            found = self._do.get(self._store, key)
            if found.meta['size'] > LARGEST:
                raise TooLarge(key, found.meta['size'])
            return bytes(found.bytes())

    def front(self, key: str, length: int) -> bytes:
        with _errors(key):
            return bytes(self._do.get_range(
                self._store, key, start=0, length=length))

    def list(self, directory: str, after: str = '') -> Iterator[Entry]:
        with _errors(directory):
            for found in self._do.list(
                    self._store, prefix=directory.rstrip('/') + '/',
                    offset=after or None):
                for each in found:
                    if each['path'] > after:  # (not all servers know offsets)
                        yield Entry(each['path'], each['size'],
                                    each['last_modified'].timestamp())

    def delete(self, key: str) -> None:
        with contextlib.suppress(Missing), _errors(key):
            self._do.delete(self._store, key)


@contextlib.contextmanager
def _errors(key: str) -> Iterator[None]:
    from obstore import exceptions
    try:
        yield
    except FileNotFoundError:
        raise Missing(key) from None
    except exceptions.AlreadyExistsError:
        raise Exists(key) from None
    except exceptions.BaseError as error:
        raise StoreError(_one_line(key, error)) from None


def _one_line(key: str, error: Exception) -> str:
    text = str(error)
    line = text.splitlines()[0].strip() if text else type(error).__name__
    reason = _REASON.search(text)
    return f'{key}: {line}' + (f' ({reason[1]})' if reason else '')
