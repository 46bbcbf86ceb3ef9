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


def plant(site, **numbers):
    """Make groups of so many objects; a dict of their oids, by group."""

    def job(start):
        with crew.database(site) as db:
            made = {
                group: [small_object(n) for n in range(number)]
                for group, number in numbers.items()}
            with db.transaction() as connection:
                for group, objects in made.items():
                    ground(connection)[group] = PersistentMapping(all=objects)
            return {group: [one._p_oid for one in objects]
                    for group, objects in made.items()}

    return crew.processes(site, [job]).results[0]


def small_object(number):
    return PersistentMapping({'number': number, 'filling': _FILLING})


def ghosts(connection, group):
    """The objects of a group, none of them loaded."""
    return ground(connection)[group]['all']


#: How one of them is loaded.
activate = PersistentMapping._p_activate
