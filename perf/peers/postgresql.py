"""PostgreSQL on a new cluster, which the driver watches.

The cluster has PostgreSQL's defaults, except for `settings`; its commits are
durable.  It belongs to the user that runs this program; or, if that is root,
as which PostgreSQL does not run, to the user that its packages make.

With `primary`, a connection string, the cluster is a standby of that one: a
copy, to which the primary streams what is written.

To connect, a client needs the password, which only the driver is told: a
client that may do anything in the cluster can run programs as its user.

Its process talks to the driver as `served` says; the address is a connection
string.
"""

import glob
import os
import pathlib
import pwd
import secrets
import shutil
import signal
import subprocess
import sys

from .. import foreign
from ..ports import free_port

PROGRAMS = 'initdb', 'postgres', 'pg_basebackup'

#: Where Debian's packages put them, which is not in PATH.
_DEBIAN = '/usr/lib/postgresql/*/bin'

#: The user that has to run them when this is root.
ACCOUNT = 'postgres'

USER, DATABASE = 'zodb', 'postgres'

_READY = 'ready to accept connections'
_STREAMS = 'started streaming WAL from primary'


def missing():
    """What is missing, or None."""
    if None in map(_found, PROGRAMS):
        return 'PostgreSQL is not installed'
    if os.geteuid() == 0 and ACCOUNT not in [
            entry.pw_name for entry in pwd.getpwall()]:
        return f'there is no user {ACCOUNT} to run PostgreSQL'
    return None


def version():
    """The version of the server that is installed."""
    said = subprocess.run([_found('postgres'), '--version'],
                          capture_output=True, text=True).stdout
    # postgres (PostgreSQL) 15.4 (Debian 15.4-1)
    return said.split()[2]


def _found(program):
    """The path of a program, or None; the newest of several."""
    versions = sorted(
        glob.glob(_DEBIAN), key=lambda path: (len(path), path), reverse=True)
    return foreign.found(program, *versions)


def serve(pipe, host, settings=None, primary=None):
    """The process, until PostgreSQL ends."""
    home = pathlib.Path('postgresql').absolute()
    home.mkdir(0o700)
    account = {}
    if os.geteuid() == 0:
        account = {'user': ACCOUNT, 'group': ACCOUNT, 'extra_groups': []}
        shutil.chown(home, **_owner(account))
    password = secrets.token_hex()
    cluster = (_new_cluster(home, password, account) if primary is None
               else _copy(home, primary, account))
    settings, address = _where(home, host, settings or {})
    foreign.serve(
        pipe, [_found('postgres'), '-D', cluster, *settings],
        f'{address} user={USER} password={password} dbname={DATABASE}',
        ready=_READY if primary is None else _STREAMS, chatter='LOG:',
        end=signal.SIGQUIT,  # at once: it is not started again
        cwd=home, **account)


def _new_cluster(home, password, account):
    known = home / 'password'
    known.write_text(password)
    if account:
        shutil.chown(known, **_owner(account))
    cluster = home / 'cluster'
    # The cluster is made without syncs; later it makes all of them.
    _run(home, account, 'initdb', '-D', cluster, '--no-sync', '--encoding',
         'UTF8', '--locale', 'C', '--auth', 'scram-sha-256', '--username',
         USER, '--pwfile', known)
    with open(cluster / 'pg_hba.conf', 'a') as rules:
        # Clients may be in another network.
        rules.write('host all all samenet scram-sha-256\n')
    return cluster


def _copy(home, primary, account):
    cluster = home / 'cluster'
    _run(home, account, 'pg_basebackup', '-D', cluster, '-d', primary,
         '--no-sync', '--checkpoint=fast', '--write-recovery-conf')
    return cluster


def _run(home, account, program, *arguments):
    made = subprocess.run(
        [_found(program), *arguments], cwd=home, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, **account)
    if made.returncode:
        sys.exit(' '.join(made.stderr.split()))


def _owner(account):
    return {name: account[name] for name in ('user', 'group')}


def _where(home, host, others):
    """Settings that make it listen there, and how clients find it.

    Without a host, it listens at a unix socket.
    """
    if host is None:
        settings = {'listen_addresses': '', 'unix_socket_directories': home}
        host, port = home, 5432
    else:
        port = free_port(host)
        settings = {'listen_addresses': host, 'unix_socket_directories': ''}
    settings['port'] = port
    return (
        [f'--{name}={value}' for name, value in {
            **others, **settings}.items()],
        f'host={host} port={port}')
