"""Files of 1 GB from a blob to a browser, and small ones beside them.

Runs two races of `fsync-time files`, of 1 GB and of 5 KB, with those who are
claimed about, nginx on a plain file, and stock ZEO.  Writes `large_files.json`
(all samples) and `large_files.txt` (the tables and the claims).  README.rst
says how to read them.
"""

import sys

import files

import claims
import running
from fsyncstorage.timing.files import command
from fsyncstorage.timing.files import memory
from fsyncstorage.timing.files import tables
from fsyncstorage.timing.files import work

ROUNDS = 3

GIGABYTE = 1 << 30

NAMES = (
    'nginx', 'x-accel:direct', 'x-accel:fsync-client', 'waitress:fsync-client',
    'waitress:zeo', 'gunicorn:fsync-client', 'gunicorn:zeo')

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
    return (site for site in files.contestants() if site.name in NAMES)


def races(quick):
    sizes = files.SMALL, 50 << 20 if quick else GIGABYTE
    return [work.race(size=size, **command.common(quick)) for size in sizes]


def _memory(contestant, role):
    return claims.Claim(
        f'{contestant}: peak of {role}, 1 GB against {files.SMALL >> 10} KB',
        'files', {'size': GIGABYTE}, contestant, memory.figure(role),
        against=contestant, against_settings={'size': files.SMALL}, under=FLAT)


CLAIMS = [
    *(files.claim('warm', name, 'warm_per_second', GIGABYTE,
                  against=files.YARDSTICK, at_least=0.85)
      for name in files.THROUGH_NGINX),
    *(_memory(*process) for process in PROCESSES),
    *(files.claim('first byte of a cold file', name, 'first_byte_seconds',
                  GIGABYTE, under=0.05)
      for name in ('waitress:fsync-client', 'gunicorn:fsync-client')),
    *(files.claim('cold', f'{server}:fsync-client', 'cold_per_second',
                  GIGABYTE, against=f'{server}:zeo', at_least=1.5)
      for server in ('waitress', 'gunicorn')),
]


def show_claims(document, console):
    return claims.show(CLAIMS, document, console)


if __name__ == '__main__':
    sys.exit(running.measure(
        'large_files', __doc__, list(contestants()), races, ROUNDS,
        tables.show, show_claims))
