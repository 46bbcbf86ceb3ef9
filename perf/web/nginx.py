"""A program: nginx, which the driver watches.

It sends the files of a directory: for all requests below `/plain/`, and if an
application behind it says so by `X-Accel-Redirect`.  It has its own port, and
writes only to its own directory.

It talks to the driver as `served` says.  It ends when its standard input is
closed, or the driver dies.
"""

import json
import os
import pathlib
import signal
import string
import subprocess
import sys

from .. import foreign
from ..ports import free_port
from .applications import LOCATION
from .program import BACKLOG

PLAIN = '/plain/'

_HOST = '127.0.0.1'

#: No server listens there: all requests are below `/plain/` then.
_NO_APPLICATION = _HOST, 1

#: It listens when it writes this.
_READY = 'start worker processes'


def missing():
    """What is missing, or None."""
    return None if _found() else 'nginx is not installed'


def version():
    """The version of nginx, or None if it is not installed."""
    if missing():
        return None
    said = subprocess.run(
        [_found(), '-v'], capture_output=True, text=True).stderr
    # nginx version: nginx/1.22.1
    return said.strip().rpartition('/')[2]


def _found():
    # Debian has it in a directory that only root has in PATH.
    return foreign.found('nginx', '/usr/sbin')


def main(options):
    """With the options of `served.running`; returns when nginx ends."""
    home = pathlib.Path(options['directory'])
    port = free_port(_HOST)
    address, number = options['application'] or _NO_APPLICATION
    template = pathlib.Path(__file__).with_name('nginx.conf').read_text()
    path = home / 'nginx.conf'
    path.write_text(string.Template(template).substitute(
        home=home, listen=f'{_HOST}:{port} backlog={BACKLOG}', plain=PLAIN,
        location=LOCATION, files=options['files'],
        application=f'{address}:{number}',
        # Its workers have to read files that only this user can read.
        user='user root;' if os.geteuid() == 0 else ''))
    return foreign.serve(
        [_found(), '-p', home, '-c', path, '-e', 'stderr'], options['bond'],
        [_HOST, port], ready=_READY, chatter='[notice]',
        end=signal.SIGTERM)  # at once, also while it sends


if __name__ == '__main__':
    sys.exit(main(json.loads(sys.argv[1])))
