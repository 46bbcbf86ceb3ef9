"""The workloads with stock clients: commits, cold reads, and both at once.

Each client is a process of its own (see `stockclients`), with an empty cache.
"""

import math
import time

import transaction
from persistent.mapping import PersistentMapping

from . import committing
from . import servers
from . import statistics
from . import stockclients
from .campaign import Race
from .loading import PAUSE

#: Small objects that each client reads; a record has about 200 bytes.
OBJECTS = 1000
_FILLING = 'x' * 120


def commit_race(**settings):
    return Race(
        'commit', settings, measure_commits,
        ('txn_per_second', 'p50_seconds', 'p99_seconds'))


def cold_race(**settings):
    return Race(
        'cold', settings, measure_cold_reads,
        ('get_per_second', 'walk_per_second'))


def beside_race(**settings):
    return Race(
        'read-beside-commit', settings, measure_reads_beside_commits,
        ('p50_seconds', 'p99_seconds', 'max_seconds'))


def measure_commits(contestant, directory, *, clients, seconds,
                    **server_settings):
    """Clients commit one object at a time, each a tree of its own."""
    with servers.running(contestant, directory, **server_settings) as server:
        trees, _ = _prepare(server, trees=clients)
        before = server.usage()
        found, took = stockclients.run(server, [
            _committer(server.address, tree, seconds) for tree in trees])
        after = server.usage()
    durations = [one for each, _ in found for one in each]
    return {
        'transactions': len(durations),
        'seconds': took,
        'txn_per_second': len(durations) / took,
        'p50_seconds': statistics.percentile(durations, 50),
        'p99_seconds': statistics.percentile(durations, 99),
        'clients_cpu': sum(cpu for _, cpu in found) / took,
        'server_cpu': (after['cpu_seconds'] - before['cpu_seconds']) / took,
        'syncs': after['syncs'] - before['syncs'],
    }


def measure_cold_reads(contestant, directory, *, clients, **server_settings):
    """Clients read all objects, once by oid and once from ghost to ghost."""
    figures = {'objects': OBJECTS}
    with servers.running(contestant, directory, **server_settings) as server:
        _, oids = _prepare(server, objects=OBJECTS)
        for name, prepare in (('get', _by_oid(oids)), ('walk', _ghosts)):
            reads, took = stockclients.run(
                server, [_reader(server.address, prepare)] * clients)
            figures[f'{name}_per_second'] = clients * OBJECTS / took
            figures[f'{name}_seconds_an_object'] = (
                sum(map(sum, reads)) / clients / OBJECTS)
    return figures


def measure_reads_beside_commits(contestant, directory, *, seconds,
                                 **server_settings):
    """One client reads, with pauses, while another one commits."""
    with servers.running(contestant, directory, **server_settings) as server:
        # With the pauses it cannot read more than these in that time.
        [tree], oids = _prepare(
            server, trees=1, objects=round(seconds / PAUSE) + 1)
        (reads, (commits, _)), _ = stockclients.run(server, [
            _reader(server.address, _by_oid(oids), seconds, PAUSE),
            _committer(server.address, tree, seconds)])
    return {
        'reads': len(reads),
        'p50_seconds': statistics.percentile(reads, 50),
        'p99_seconds': statistics.percentile(reads, 99),
        'max_seconds': max(reads),
        'commits': len(commits),
    }


def _prepare(server, trees=0, objects=0):
    """The names of so many new trees, and the oids of so many objects."""

    def job(start):
        start()
        with stockclients.database(server.address) as db:
            names = committing.plant(db, trees)
            with db.transaction() as connection:
                found = [
                    PersistentMapping({'number': n, 'filling': _FILLING})
                    for n in range(objects)]
                connection.root()['objects'] = PersistentMapping(all=found)
            return names, [one._p_oid for one in found]

    [prepared], _ = stockclients.run(server, [job])
    return prepared


def _committer(address, name, seconds):
    """Returns how long each commit took, and the processor time of all."""

    def job(start):
        with stockclients.database(address) as db:
            manager = transaction.TransactionManager()
            tree = db.open(manager).root()[name]
            len(tree)  # loads it
            start()
            cpu, end = time.process_time(), time.perf_counter() + seconds
            durations = []
            while not durations or time.perf_counter() < end:
                tree[0] = len(durations)
                began = time.perf_counter()
                manager.commit()
                durations.append(time.perf_counter() - began)
            return durations, time.process_time() - cpu

    return job


def _by_oid(oids):
    return lambda connection: (connection.get, oids)


def _ghosts(connection):
    return PersistentMapping._p_activate, connection.root()['objects']['all']


def _reader(address, prepare, seconds=math.inf, pause=0):
    """Returns how long each read took; `prepare` tells how to read what."""

    def job(start):
        with stockclients.database(address) as db:
            read, objects = prepare(db.open())
            start()
            end = time.perf_counter() + seconds
            durations = []
            for one in objects:
                began = time.perf_counter()
                read(one)
                now = time.perf_counter()
                durations.append(now - began)
                if now > end:
                    break
                if pause:
                    time.sleep(pause)
            return durations

    return job
