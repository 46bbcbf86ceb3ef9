"""Files from a blob to a browser, by size; and the claims about serving them.

Runs the races of `fsync-time files`, and one more with files of 1 GB: nginx on
a plain file is the yardstick; ours goes through nginx (X-Accel-Redirect), and
from waitress and gunicorn; stock ZEO stands beside.  Writes `files.json` (all
samples) and `files.txt` (the tables and the claims).  README.rst says how to
read them.
"""

import sys

import claims
import running
from fsyncstorage.timing.files import command as files
from fsyncstorage.timing.files import sites as filesites
from fsyncstorage.timing.files import memory as filesmemory
from fsyncstorage.timing.files import tables as filestables
from fsyncstorage.timing.files import work as fileswork

ROUNDS = 7

YARDSTICK, BARE = 'nginx', 'x-accel:bare'
THROUGH_NGINX = 'x-accel:direct', 'x-accel:fsync-client'
BY_GUNICORN = 'gunicorn:direct', 'gunicorn:fsync-client'

SMALL, MEDIUM, LARGE, HUGE = 5 << 10, 500 << 10, 5000 << 10, 50000 << 10
GIGABYTE = 1 << 30

#: Whose memory is looked at.
PROCESSES = (
    ('x-accel:fsync-client', 'nginx'),
    ('x-accel:fsync-client', 'application'),
    ('x-accel:fsync-client', 'server'),
    ('waitress:fsync-client', 'application'),
    ('gunicorn:fsync-client', 'application'),
)
#: Two peaks that are the same differ by less.
FLAT = 1.25


def contestants():
    """Those that are installed."""
    for contestant in filesites.CONTESTANTS.values():
        if reason := contestant.missing():
            print(f'{contestant.name} is left out: {reason}', file=sys.stderr)
        else:
            yield contestant


def races(quick):
    # In the quick run, not all claims can be looked at.
    sizes = ((SMALL, MEDIUM, LARGE) if quick
             else (*files.DEFAULT_SIZES, GIGABYTE))
    return [fileswork.race(size=size, **files.common(quick))
            for size in sizes]


def claim(words, contestant, figure, size, **options):
    against = f', against {options["against"]}' if 'against' in options else ''
    return claims.Claim(
        f'{contestant}: {words}, {size >> 10:,} KB{against}', 'files',
        {'size': size}, contestant, figure, **options)


def _memory(contestant, role):
    return claims.Claim(
        f'{contestant}: peak of {role}, 1 GB against {SMALL >> 10} KB',
        'files', {'size': GIGABYTE}, contestant, filesmemory.figure(role),
        against=contestant, against_settings={'size': SMALL}, under=FLAT)


CLAIMS = [
    *(claim('warm', name, 'warm_per_second', MEDIUM,
            against=BARE, at_least=0.7)
      for name in THROUGH_NGINX),
    *(claim('warm', name, 'warm_per_second', size,
            against=YARDSTICK, at_least=0.85)
      for size in (LARGE, HUGE, GIGABYTE) for name in THROUGH_NGINX),
    *(claim('warm', name, 'warm_per_second', HUGE,
            against=YARDSTICK, at_least=0.5)
      for name in BY_GUNICORN),
    *(_memory(*process) for process in PROCESSES),
    *(claim('first byte of a cold file', name, 'first_byte_seconds',
            GIGABYTE, under=0.05)
      for name in ('waitress:fsync-client', 'gunicorn:fsync-client')),
    *(claim('cold', f'{server}:fsync-client', 'cold_per_second', GIGABYTE,
            against=f'{server}:zeo', at_least=1.5)
      for server in ('waitress', 'gunicorn')),
]


def show_claims(document, console):
    return claims.show(CLAIMS, document, console)


if __name__ == '__main__':
    sys.exit(running.measure(
        'files', __doc__, list(contestants()), races, ROUNDS,
        filestables.show, show_claims))
