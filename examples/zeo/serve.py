"""Serve the example database: say where it and its live page are, then become
fsync-runzeo.

The data are in var/ in the current directory.
"""

import argparse
import errno
import os
import socket
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIGURATION = os.path.join(HERE, 'zeo.conf')
HOST = '127.0.0.1'
HIGHEST = 65535     # of all ports

# From the port of the database to that of the live page.
BESIDE = 90

NOTICE = """\
See what it does, in a browser: http://{host}:{page}

An example database is served at {host}:{port}, to this machine only.
Its data are in {var}.  Ctrl-C stops it.

From another terminal, with our client ({python}):

    import ZODB
    from fsyncstorage.client.storage import FsyncClient
    db = ZODB.DB(FsyncClient(({host!r}, {port})))
    with db.transaction() as connection:
        connection.root.greeting = 'hello'
    db.close()

or with the client of ZEO, which the server serves as well:

    import ZEO
    connection = ZEO.connection(({host!r}, {port}))
    print(connection.root.greeting)
    connection.close()

In a zope.conf, our client:

    %import fsyncstorage.client
    <zodb_db main>
      mount-point /
      <fsyncclient>
        server {host}:{port}
      </fsyncclient>
    </zodb_db>

For the client of ZEO, write <zeoclient> instead, without the %import; its URI
for zodburi is zeo://{host}:{port}

What to try next:

    {check} var/Data.fs
        looks for damage, also while the server runs
    {time} disk . --quick
        measures what a commit costs on this disk
    local-reads on
        in the <fsyncstorage> of {configuration}: then our
        client, on this machine, reads objects from the data file itself, and
        asks no server; docs/configure.rst says who else can read it then
    docs/first-steps.rst
        kills a server, and shows that nothing was lost; it uses the port
        8100, so stop this one first
    docs/moving.rst
        moves a site of yours in, and back

"""


def port_number(text):
    if not (text.isdecimal() and 1 <= int(text) <= HIGHEST):
        raise argparse.ArgumentTypeError(
            f'{text!r} is not from 1 to {HIGHEST}')
    return int(text)


def beside(port):
    return port + BESIDE if port + BESIDE <= HIGHEST else port - BESIDE


def command(name):
    """The path of a command that was installed together with this Python."""
    return os.path.join(os.path.dirname(sys.executable), name)


def why_not(port):
    """Why this port cannot be used; None if it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return 'another program is listening there'
            return error.strerror


def main():
    parser = argparse.ArgumentParser(
        description='Serve the example database over ZEO.')
    parser.add_argument('--port', type=port_number, default=8100)
    parser.add_argument(
        '--page', type=port_number,
        help=f'port of the live page; {BESIDE} from that of the database')
    arguments = parser.parse_args()
    port = arguments.port
    page = arguments.page or beside(port)
    if page == port:
        parser.error('the page needs another port than the database')

    for each in port, page:
        reason = why_not(each)
        if reason:
            other = port + 1 if port < HIGHEST else port - 1
            sys.exit(
                f'Cannot serve at {HOST}:{each}: {reason}.\n'
                f'Choose another port, for example: make run PORT={other}')

    os.makedirs('var', exist_ok=True)
    print(NOTICE.format(
        host=HOST, port=port, page=page, python=sys.executable,
        var=os.path.abspath('var'), check=command('fsync-check'),
        time=command('fsync-time'),
        configuration=CONFIGURATION), flush=True)

    runzeo = command('fsync-runzeo')
    os.execv(runzeo, [runzeo,
                      '-C', CONFIGURATION,
                      '-a', f'{HOST}:{port}',
                      '--metrics', f'{HOST}:{page}'])


if __name__ == '__main__':
    main()
