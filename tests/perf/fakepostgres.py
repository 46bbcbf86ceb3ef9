"""The program `postgresql` of the campaigns, over stand-ins.

They are scripts; `write` makes them in a directory, and the program is told
which one by an option of its own.
"""

import json
import os
import pathlib
import sys
from unittest import mock

from perf.peers import postgresql

INITDB = """\
import os, sys
arguments = dict(zip(sys.argv[1:], sys.argv[2:]))
if not os.path.exists(arguments['--pwfile']):
    sys.exit('no password')
os.mkdir(arguments['-D'])
"""

#: Leaves what it was told.
BASEBACKUP = """\
import os, sys
arguments = dict(zip(sys.argv[1:], sys.argv[2:]))
if '--write-recovery-conf' not in sys.argv:
    sys.exit('it would be no standby')
os.mkdir(arguments['-D'])
with open(os.path.join(arguments['-D'], '..', '..', 'copied'), 'w') as file:
    file.write(arguments['-d'])
"""

#: Leaves its process id; serves until it is told to end.
POSTGRES = """\
import os, signal, sys
cluster = sys.argv[2]
with open(os.path.join(cluster, '..', '..', 'pid'), 'w') as file:
    file.write(str(os.getpid()))
print('LOG:  starting', file=sys.stderr)
print('LOG:  database system is ready to accept connections',
      file=sys.stderr, flush=True)
signal.pause()
"""

#: Has a child, too, which is not told to end; both hold a lock.  It does not
#: outlive a failing test for long.
WITH_CHILD = """\
import fcntl, os, signal, sys
lock = open(os.path.join(sys.argv[2], '..', '..', 'lock'), 'w')
fcntl.flock(lock, fcntl.LOCK_EX)
if os.fork() == 0:
    signal.alarm(60)
    signal.pause()
""" + POSTGRES

FAILING = """\
import sys
print('LOG:  starting', file=sys.stderr)
sys.exit('FATAL:  no room')
"""


#: The standby of another one.
STANDBY = POSTGRES.replace(
    'database system is ready to accept connections',
    'started streaming WAL from primary at 0/3000000 on timeline 1')


def write(directory, initdb=INITDB, postgres=POSTGRES):
    for name, text in (('initdb', initdb), ('postgres', postgres),
                       ('pg_basebackup', BASEBACKUP)):
        path = pathlib.Path(directory, name)
        path.write_text(f'#!{sys.executable}\n{text}')
        path.chmod(0o755)


def main(options):

    def found(program):
        return os.path.join(options['programs'], program)

    # Also when this is root, it does not run as another user.
    with mock.patch.object(postgresql, '_found', found), \
            mock.patch.object(os, 'geteuid', lambda: 1000):
        return postgresql.main(options)


if __name__ == '__main__':
    sys.exit(main(json.loads(sys.argv[1])))
