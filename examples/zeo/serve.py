"""Serve the example database: say where it is, then become fsync-runzeo.

Data go to var/ in the current directory.
"""

import argparse
import errno
import os
import socket
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
HOST = '127.0.0.1'

NOTICE = """\
An example database is served over ZEO at {host}:{port}, this machine only.
Its data are in {var}.

To connect from Python ({python}):

    import ZEO, transaction
    connection = ZEO.connection(({host!r}, {port}))
    connection.root.greeting = 'hello'
    transaction.commit()
    connection.close()

as a URI of zodburi:

    zeo://{host}:{port}

in a zope.conf:

    <zodb_db main>
      mount-point /
      <zeoclient>
        server {host}:{port}
      </zeoclient>
    </zodb_db>

Ctrl-C stops it.
"""


def port_number(text):
    if not (text.isdecimal() and 1 <= int(text) <= 65535):
        raise argparse.ArgumentTypeError(f'{text!r} is not from 1 to 65535')
    return int(text)


def why_not(port):
    """What speaks against listening on this port; None if nothing does."""
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
    port = parser.parse_args().port

    reason = why_not(port)
    if reason:
        sys.exit(f'Cannot serve at {HOST}:{port}: {reason}.\n'
                 f'Choose another port, for example: make run PORT={port + 1}')

    os.makedirs('var', exist_ok=True)
    print(NOTICE.format(host=HOST, port=port, python=sys.executable,
                        var=os.path.abspath('var')), flush=True)

    runzeo = os.path.join(os.path.dirname(sys.executable), 'fsync-runzeo')
    os.execv(runzeo, [runzeo,
                      '-C', os.path.join(HERE, 'zeo.conf'),
                      '-a', f'{HOST}:{port}'])


if __name__ == '__main__':
    main()
