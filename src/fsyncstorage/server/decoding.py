"""A client's messages, decoded: plain data, or an error.

A message may come from anybody, and ZEO's own decoder gives a pickle access to
all of `builtins`.  The decoder here calls nothing: it makes plain data, and
the few classes below that stock clients send.  It takes at most the memory of
the message plus a constant, and time in proportion.

Left to others: whether the message is a call, and of which method (calls).
"""

import functools
import io

from ZEO.asyncio import marshal
from zodbpickle import pickle

from ..format import pickles
from ..format.pickles import Unreadable
from ..format.plain import PlainReader

# An extension of a transaction may hold some, and `iterator_gc` a long list.
# So many opcodes take less than 2 MB in addition to the frame.
MOST_STEPS = 10000
# So deep they are nested, too.
MOST_CONTAINERS = 100
# Values of an array or a map of msgpack: 20 MB in all, and 32 MB for values
# that are announced and missing.
LONGEST_ARRAY = 1 << 12


def decoder(encoding):
    """The decoder of a client of this encoding, `b'Z'` or `b'M'`."""
    if encoding == b'M':
        import msgpack  # only clients of this encoding need it
        return functools.partial(_decode_msgpack, msgpack.unpackb)
    return PlainReader(MOST_STEPS, MOST_CONTAINERS).load


def _decode_msgpack(unpack, message):
    containers = MOST_CONTAINERS

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
