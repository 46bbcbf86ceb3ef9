"""The objects of a measurement, and where they are kept in a database.

All of them are below one key of the root.  A database whose root has another
key has data of somebody else: nothing is written to it.
"""

import itertools

from persistent.mapping import PersistentMapping

from . import crew

#: The key.
KEY = 'fsync-time'

#: A record has about 200 bytes.
_FILLING = 'x' * 120


def ground(connection):
    """The mapping that holds the objects; a new one in an empty database."""
    root = connection.root()
    if others := root.keys() - {KEY}:
        raise ValueError(
            f'in its root is {min(map(str, others))!r}, which is not of'
            ' fsync-time: measure a new database')
    return root.setdefault(KEY, PersistentMapping())


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

    [found], _ = crew.processes(site, [job])
    return found


def small(**numbers):
    """Return a `make` for `plant`: groups with these numbers of objects."""
    return lambda connection: {
        group: [PersistentMapping({'number': n, 'filling': _FILLING})
                for n in range(number)]
        for group, number in numbers.items()}


def ghosts(connection, group):
    """The objects of a group, none of them loaded."""
    return ground(connection)[group]['all']


def changed(contestant, directory, clients, objects, change, *, times=None,
            seconds=None, **site_settings):
    """Time the commits of clients, each with this number of objects of its
    own; return a stretch of each, and what the server used.

    `change` is called with a connection and the objects.  The first commit of
    a client is not timed.
    """
    groups = [f'of client {number}' for number in range(clients)]
    with contestant.running(directory, **site_settings) as site:
        plant(site, small(**dict.fromkeys(groups, objects)))
        stretches, [usage] = crew.processes(site, [
            _writer(site, group, change, times, seconds) for group in groups])
    return stretches, usage


@crew.job
def _writer(site, group, change, times, seconds, start):
    """A job that returns a stretch."""
    with crew.connected(site) as (manager, connection):
        objects = ghosts(connection, group)

        def commit():
            manager.begin()
            change(connection, objects)
            manager.commit()

        commit()
        start()
        return crew.timed(
            itertools.islice(itertools.repeat(commit), times), seconds)


#: Loads an object.
activate = PersistentMapping._p_activate
