"""The objects of the workloads of `fsync-time zeo`: small, and all alike."""

from persistent.mapping import PersistentMapping

from . import ground
from . import processes

#: A record has about 200 bytes.
_FILLING = 'x' * 120


def plant(site, **numbers):
    """Make groups of so many objects; a dict of their oids, by group."""

    def job(start):
        with processes.database(site) as db:
            made = {
                group: [small_object(n) for n in range(number)]
                for group, number in numbers.items()}
            with db.transaction() as connection:
                for group, objects in made.items():
                    ground.of(connection)[group] = PersistentMapping(
                        all=objects)
            return {group: [one._p_oid for one in objects]
                    for group, objects in made.items()}

    return processes.run(site, [job]).results[0]


def small_object(number):
    return PersistentMapping({'number': number, 'filling': _FILLING})


def ghosts(connection, group):
    """The objects of a group, none of them loaded."""
    return ground.of(connection)[group]['all']


#: How one of them is loaded.
activate = PersistentMapping._p_activate
