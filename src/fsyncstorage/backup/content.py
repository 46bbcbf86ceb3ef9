"""Puts what may be too large for one object, and reads it again.

Content of up to `PART` bytes is one object: head and bytes.  What is larger is
in parts, each named by its SHA-256, and an object with their manifest, which
is put last.  So content that is there is whole, and an upload that was cut off
finds its parts again.

A reader believes nothing: it checks each part by its name, and all of it by
the head.
"""

import functools
import hashlib
from collections.abc import Iterator
from contextlib import suppress

from ..format import scan
from ..format.window import Pread
from . import bodies
from . import head as heads
from .head import Damaged
from .head import Head
from .layout import part_of
from .prefix import read_fully
from .store import Exists
from .store import Missing
from .store import Store
from .store import TooLarge
from .store import is_there

#: Several of them are in memory at a time, and each more than once.
PART = 16 << 20


class Changed(Exception):
    """What is put is not what its sum was made of."""


def of_bytes(data: bytes) -> Pread:
    return lambda length, at: data[at:at + length]


def of_file(number: int) -> Pread:
    """By the descriptor of the file."""
    return functools.partial(read_fully, number)


def sum_of(read: Pread, length: int) -> bytes:
    """The SHA-256 of content."""
    found = hashlib.sha256()
    for position in range(0, length, PART):
        found.update(read(min(PART, length - position), position))
    return found.digest()


def is_in(head: Head, read: Pread, end: int) -> bool:
    """Are the bytes of this segment, or of this pack, in a file that has so
    many?

    (A pack that has left nothing of what was shipped would be in any file: the
    first transaction behind it must be a later one.)"""
    if head.end <= scan.FIRST and scan.FIRST + scan.HEADER <= end and (
            read(len(head.tid), scan.FIRST) <= head.tid):
        return False
    return head.end <= end and head.plain == sum_of(
        lambda length, at: read(length, head.start + at), head.length)


def put(store: Store, key: str, head: Head, read: Pread) -> Head:
    """Put content, of which `head` says length and sum; return its head, with
    the form.  Exists: there is an object of that key."""
    *_, head = put_in_steps(store, key, head, read)
    return head


def put_in_steps(store: Store, key: str, head: Head, read: Pread
                 ) -> Iterator[Head]:
    """As `put`; yield the head behind each part, and behind all."""
    if head.length <= PART:
        head = head._replace(form=heads.WHOLE)
        body = read(head.length, 0)
        _refuse_changed(hashlib.sha256(body).digest(), head, key)
    else:
        head, parts = head._replace(form=heads.MANIFEST), []
        for part in _put_parts(store, key, head, read):
            parts.append(part)
            yield head
        body = bodies.manifest(parts)
    store.create(key, head.pack() + body)
    yield head


def _put_parts(store: Store, key: str, head: Head, read: Pread
               ) -> Iterator[bodies.Part]:
    whole = hashlib.sha256()
    for position in range(0, head.length, PART):
        data = read(min(PART, head.length - position), position)
        whole.update(data)
        part = bodies.Part(hashlib.sha256(data).digest(), len(data))
        name = part_of(key, part.sum)
        if not is_there(store, name):
            with suppress(Exists):
                store.create(name, data)
        yield part
    _refuse_changed(whole.digest(), head, key)


def _refuse_changed(found: bytes, head: Head, key: str) -> None:
    if found != head.plain:
        raise Changed(f'{key}: its content has changed while it was read')


def get(store: Store, key: str, kinds: tuple[bytes, ...]
        ) -> tuple[Head, Iterator[bytes]]:
    """The head of an object, and its content in pieces of `PART` bytes at
    most; Damaged, also while the pieces are read."""
    return opened(store, key, got(store, key), kinds)


def got(store: Store, key: str) -> bytes:
    """All of an object, which must be there."""
    try:
        return store.get(key)
    except (Missing, TooLarge) as error:
        raise Damaged(str(error)) from None


def opened(store: Store, key: str, data: bytes,
           kinds: tuple[bytes, ...]) -> tuple[Head, Iterator[bytes]]:
    """As `get`, of an object that was read."""
    try:
        head = heads.unpack(data, kinds)
        body = data[heads.SIZE:]
        if head.form != heads.MANIFEST:
            if len(body) != head.body:
                raise Damaged(f'it has {len(body):,} bytes behind its head,'
                              f' which says {head.body:,}')
            return head, (_verified(key, head, iter([body]))
                          if head.form == heads.WHOLE else iter(()))
        parts = bodies.read_manifest(body, head.length, PART)
    except Damaged as error:
        raise type(error)(f'{key}: {error}') from None
    return head, _verified(key, head, _parts(store, key, parts))


def _parts(store: Store, key: str, parts: list[bodies.Part]
           ) -> Iterator[bytes]:
    for part in parts:
        name = part_of(key, part.sum)
        try:
            data = got(store, name)
        except Damaged as error:
            raise Damaged(f'{error}, and is a part of {key}') from None
        if hashlib.sha256(data).digest() != part.sum:
            raise Damaged(f'{name}, a part of {key}, does not fit the sum that'
                          ' is its name')
        yield data


def _verified(key: str, head: Head,
              pieces: Iterator[bytes]) -> Iterator[bytes]:
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
        yield piece
    if found.digest() != head.plain:
        raise Damaged(f'{key}: its bytes do not fit the sum in its head')
