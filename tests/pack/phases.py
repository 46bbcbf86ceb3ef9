"""Packs that have something to free, and what happens in a phase of one."""

import contextlib
import threading
from unittest import mock

import ZODB
import ZODB.blob

from fsyncstorage.pack import progress

from ..support import until

PHASES = [progress.CHECK, progress.REFERENCES, progress.MARK, progress.COPY,
          progress.SWAP]


def fill(storage):
    """Give a storage something that a pack frees; blobs, too, if it can have
    them."""
    db = ZODB.DB(storage)
    for number in range(20):
        with db.transaction() as connection:
            connection.root()['text'] = 'x' * number * 100
            if storage.blob_dir:
                connection.root()['blob'] = ZODB.blob.Blob(b'x' * number)
    return storage


def at(phase, do, kind=progress.PACK):
    """While this lasts, `do(watch)` is called once in a phase."""
    tell = progress.PackWatch.tell
    done = []

    def tell_us(watch, told, *figures):
        tell(watch, told, *figures)
        if told == phase and watch._kind == kind and not done:
            done.append(told)
            do(watch)

    return mock.patch.object(progress.PackWatch, 'tell', tell_us)


@contextlib.contextmanager
def held_up(phase, kind=progress.PACK):
    """While this lasts, what is under way waits in a phase, unless it is
    cancelled; yield an event that is set when it is there."""
    there, go_on = threading.Event(), threading.Event()

    def wait(watch):
        there.set()
        until(lambda: go_on.is_set() or watch._cancelled, 'an end')
        watch.go_on()

    with at(phase, wait, kind):
        try:
            yield there
        finally:
            go_on.set()
