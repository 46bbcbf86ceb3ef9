"""A process with a server, until its input ends.  It says its port.

    python -m tests.crash.cuts.server DATA.FS CLIENTS-RESOLVE
"""

import faulthandler
import logging
import signal
import sys
import threading

from fsyncstorage import FsyncStorage
from fsyncstorage.server.server import Server


def main(path, clients_resolve):
    faulthandler.register(signal.SIGUSR1)
    logging.basicConfig(level=logging.WARNING)
    server = Server(
        ('127.0.0.1', 0), {'1': FsyncStorage(path)},
        client_conflict_resolution=bool(int(clients_resolve)))
    thread = threading.Thread(target=server.loop)
    thread.start()
    print(server.acceptor.addr[1], flush=True)
    sys.stdin.read()
    server.close()
    thread.join()


if __name__ == '__main__':
    main(*sys.argv[1:])
