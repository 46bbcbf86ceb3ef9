"""Where the objects of a measurement are kept in a database.

In one that the driver made that is the root.  In one that is the user's it is
a mapping below a key of the root, and nothing else is touched.

Which it is belongs to the process that takes a sample, and to all that are
forked from it.
"""

import contextlib

#: The key; None in a database of the driver's own.
_key = None


@contextlib.contextmanager
def below(key):
    global _key
    before, _key = _key, key
    try:
        yield
    finally:
        _key = before


def of(connection):
    root = connection.root()
    return root if _key is None else root[_key]
