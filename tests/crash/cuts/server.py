"""A process with a server, until its input ends.  It says its port.

    python -m tests.crash.cuts.server DATA.FS SECONDS-A-SYNC CLIENTS-RESOLVE
"""

import faulthandler
import logging
import signal
import sys
import threading
import time

from fsyncstorage import FsyncStorage
from fsyncstorage import datafile
from fsyncstorage.server.server import Server


class SlowDisk(datafile.Disk):

    def __init__(self, seconds):
        self._seconds = seconds

    def sync(self, fd):
        # No event can stand for this: the time is what it adds.
        time.sleep(self._seconds)
        super().sync(fd)


def main(path, seconds_a_sync, clients_resolve):
    faulthandler.register(signal.SIGUSR1)
    logging.basicConfig(level=logging.WARNING)
    datafile.disk = SlowDisk(float(seconds_a_sync))
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
