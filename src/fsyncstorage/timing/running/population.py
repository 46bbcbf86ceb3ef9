"""The objects of a measurement, and where they are kept in a database.

In a database that the driver made, they are in the root.  In the user's own
database they are in a mapping below a key of the root, and nothing else is
touched.  The choice holds for the process that takes a sample, and for the
processes forked from it.
"""

import contextlib

from persistent.mapping import PersistentMapping

from . import crew

#: A record has about 200 bytes.
_FILLING = 'x' * 120

#: The key; None in a database that the driver made.
_key = None


@contextlib.contextmanager
def below(key):
    """Inside the `with`, objects are kept below this key of the root."""
    global _key
    before, _key = _key, key
    try:
        yield
    finally:
        _key = before


def ground(connection):
    """The mapping that holds the objects."""
    root = connection.root()
    return root if _key is None else root[_key]


def plant(site, make):
    """Make groups of objects; return their oids, by group.

    `make` is called with a connection, and returns lists of objects by group.
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
    """Return a `make` for `plant`: groups with these numbers of objects."""
    return lambda connection: {
        group: [small_object(n) for n in range(number)]
        for group, number in numbers.items()}


def small_object(number):
    return PersistentMapping({'number': number, 'filling': _FILLING})


def ghosts(connection, group):
    """The objects of a group, none of them loaded."""
    return ground(connection)[group]['all']


#: Loads an object.
activate = PersistentMapping._p_activate
