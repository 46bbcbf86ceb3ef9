"""The objects of a measurement, and where they are kept in a database.

In one that the driver made that is the root.  In one that is the user's it is
a mapping below a key of the root, and nothing else is touched.  Which it is
belongs to the process that takes a sample, and to all that are forked from it.
"""

import contextlib

from persistent.mapping import PersistentMapping

from . import crew

#: A record has about 200 bytes.
_FILLING = 'x' * 120

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


def ground(connection):
    root = connection.root()
    return root if _key is None else root[_key]


def plant(site, make):
    """Make groups of objects; a dict of their oids, by group.

    `make` is called with a connection, and returns lists of them by group.
    """

    def job(start):
        with crew.connected(site) as (manager, connection):
            manager.begin()
            made = make(connection)
            for group, objects in made.items():
                ground(connection)[group] = PersistentMapping(all=objects)
            manager.commit()
            return {group: [one._p_oid for one in objects]
                    for group, objects in made.items()}

    return crew.processes(site, [job]).results[0]


def small(**numbers):
    """For `plant`: groups of so many small objects."""
    return lambda connection: {
        group: [small_object(n) for n in range(number)]
        for group, number in numbers.items()}


def small_object(number):
    return PersistentMapping({'number': number, 'filling': _FILLING})


def ghosts(connection, group):
    """The objects of a group, none of them loaded."""
    return ground(connection)[group]['all']


#: How one of them is loaded.
activate = PersistentMapping._p_activate
