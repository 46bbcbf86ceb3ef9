"""MariaDB on a new data directory, which the driver watches.

It has MariaDB's defaults, with which each commit is durable, and belongs to
the user that runs this program.

To connect, a client needs the password, which only the driver is told.

Its process talks to the driver as `served` says; the address is a list of the
keys by which the section <mysql> of RelStorage connects.
"""

import os
import pathlib
import secrets
import signal
import subprocess
import sys

from .. import foreign
from ..ports import free_port

SERVER, INSTALLER = PROGRAMS = 'mariadbd', 'mariadb-install-db'

#: Where Debian's packages put the server, which is not in PATH.
_DEBIAN = '/usr/sbin'

DATABASE = USER = 'zodb'

#: What the server runs when it starts.
_FIRST = f"""\
CREATE DATABASE {DATABASE};
CREATE USER {USER}@localhost IDENTIFIED BY '{{password}}';
CREATE USER {USER}@'%' IDENTIFIED BY '{{password}}';
GRANT ALL ON {DATABASE}.* TO {USER}@localhost, {USER}@'%';
"""


def missing():
    """What is missing, or None."""
    return 'MariaDB is not installed' if None in map(
        _found, PROGRAMS) else None


def version():
    """The version of the server that is installed."""
    said = subprocess.run([_found(SERVER), '--version'],
                          capture_output=True, text=True).stdout
    # mariadbd  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64
    return said.split()[2].partition('-')[0]


def _found(program):
    return foreign.found(program, _DEBIAN)


def serve(pipe, host):
    """The process, until MariaDB ends.  Without a host, it listens at a unix
    socket."""
    home = pathlib.Path('mariadb').absolute()
    home.mkdir(0o700)
    # It refuses to run as root unless it is told to.
    common = ['--no-defaults', f'--datadir={home / "data"}', *(
        ['--user=root'] if os.geteuid() == 0 else [])]
    made = subprocess.run(
        [_found(INSTALLER), *common, '--auth-root-authentication-method=socket',
         '--skip-test-db'], stdin=subprocess.DEVNULL, capture_output=True,
        text=True)
    if made.returncode:
        sys.exit(' '.join(made.stderr.split()))
    password = secrets.token_hex()
    first = home / 'first.sql'
    first.write_text(_FIRST.format(password=password))
    socket = home / 'socket'
    port = None if host is None else free_port(host)
    foreign.serve(
        pipe,
        [_found(SERVER), *common, f'--init-file={first}', f'--socket={socket}',
         *(['--skip-networking'] if host is None
           else [f'--bind-address={host}', f'--port={port}'])],
        '\n'.join([
            f'user {USER}', f'passwd {password}', f'db {DATABASE}',
            *([f'unix_socket {socket}'] if host is None
              else [f'host {host}', f'port {port}'])]),
        ready='ready for connections', chatter='[Note]', end=signal.SIGKILL)
