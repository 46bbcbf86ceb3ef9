"""How long a cold read takes while another client commits.

One client process reads objects, each once, with short pauses; another one
changes an object of its own as fast as it can.
"""

import functools

from .. import processes
from ..campaign import Race
from ..population import plant
from .writing import writer

#: Between two reads, in seconds.
PAUSE = 0.001


def race(**settings):
    return Race(
        'read-beside-commit', settings, measure,
        ('p50_seconds', 'p99_seconds', 'max_seconds'))


def measure(contestant, directory, *, seconds, **site_settings):
    """Time the reads of one contestant; the figures of it."""
    with contestant.running(directory, **site_settings) as site:
        # With the pauses it cannot read more than these in that time.
        oids = plant(
            site, read=round(seconds / PAUSE) + 1, written=1)['read']
        (reads, commits), _ = processes.run(site, [
            _reader(site, oids, seconds), writer(site, 'written', seconds)])
    return {
        'reads': len(reads.durations),
        **processes.times(reads.durations),
        'commits': len(commits.durations),
    }


def _reader(site, oids, seconds):
    """A job that returns a stretch."""

    def job(start):
        with processes.database(site) as db:
            connection = db.open()
            start()
            return processes.timed(processes.paced(
                [functools.partial(connection.get, oid) for oid in oids],
                PAUSE), seconds)

    return job
