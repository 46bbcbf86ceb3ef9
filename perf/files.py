"""Files from a blob to a browser, by size; and the claims about serving them.

Runs the races of `fsync-time files`: nginx on a plain file is the yardstick;
ours goes through nginx (X-Accel-Redirect), and from waitress and gunicorn;
stock ZEO stands beside.  Writes `files.json` (all samples) and `files.txt`
(the tables and the claims).  README.rst says how to read them; files of 1 GB
are in `large_files.py`.
"""

import sys

import claims
import running
from fsyncstorage.timing.files import command
from fsyncstorage.timing.files import sites
from fsyncstorage.timing.files import tables
from fsyncstorage.timing.files import work

ROUNDS = 7

YARDSTICK, BARE = 'nginx', 'x-accel:bare'
THROUGH_NGINX = 'x-accel:direct', 'x-accel:fsync-client'
BY_GUNICORN = 'gunicorn:direct', 'gunicorn:fsync-client'

SMALL, MEDIUM, LARGE, HUGE = 5 << 10, 500 << 10, 5000 << 10, 50000 << 10


def contestants():
    """Those that are installed."""
    for contestant in sites.CONTESTANTS.values():
        if reason := contestant.missing():
            print(f'{contestant.name} is left out: {reason}', file=sys.stderr)
        else:
            yield contestant


def races(quick):
    # In the quick run, not all claims can be looked at.
    sizes = (SMALL, MEDIUM, LARGE) if quick else command.DEFAULT_SIZES
    return [work.race(size=size, **command.common(quick)) for size in sizes]


def claim(words, contestant, figure, size, **options):
    against = f', against {options["against"]}' if 'against' in options else ''
    return claims.Claim(
        f'{contestant}: {words}, {size >> 10:,} KB{against}', 'files',
        {'size': size}, contestant, figure, **options)


CLAIMS = [
    *(claim('warm', name, 'warm_per_second', MEDIUM,
            against=BARE, at_least=0.7)
      for name in THROUGH_NGINX),
    *(claim('warm', name, 'warm_per_second', size,
            against=YARDSTICK, at_least=0.85)
      for size in (LARGE, HUGE) for name in THROUGH_NGINX),
    *(claim('warm', name, 'warm_per_second', HUGE,
            against=YARDSTICK, at_least=0.5)
      for name in BY_GUNICORN),
]


def show_claims(document, console):
    return claims.show(CLAIMS, document, console)


if __name__ == '__main__':
    sys.exit(running.measure(
        'files', __doc__, list(contestants()), races, ROUNDS,
        tables.show, show_claims))
