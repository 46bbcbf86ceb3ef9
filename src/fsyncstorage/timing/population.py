"""The objects of the workloads of `fsync-time zeo`: small, and all alike."""

from persistent.mapping import PersistentMapping

from . import ground
from . import processes

#: A record has about 200 bytes.
_FILLING = 'x' * 120

#: No read for a small object is longer.
_SPACE = 'x' * (8 << 10)


def plant(site, apart=False, **numbers):
    """Make groups of so many objects; a dict of their oids, by group.

    When they are apart, no two are on the same page of a data file: that has
    them in the order in which they are met, and what is between them.
    """

    def job(start):
        with processes.database(site) as db:
            made = {
                group: [PersistentMapping({'number': n, 'filling': _FILLING})
                        for n in range(number)]
                for group, number in numbers.items()}
            with db.transaction() as connection:
                for group, objects in made.items():
                    ground.of(connection)[group] = PersistentMapping(
                        spaced=[(one, _space()) for one in objects if apart],
                        all=objects)
            return {group: [one._p_oid for one in objects]
                    for group, objects in made.items()}

    return processes.run(site, [job]).results[0]


def _space():
    return PersistentMapping(filling=_SPACE)


def ghosts(connection, group):
    """The objects of a group, none of them loaded."""
    return ground.of(connection)[group]['all']


#: How one of them is loaded.
activate = PersistentMapping._p_activate
