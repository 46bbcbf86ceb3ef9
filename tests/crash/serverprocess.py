"""A server in a process of its own, which is killed."""

import subprocess
import sys


class ServerProcess:
    """Part of a test case; `zeo.conf` is in its directory."""

    def start(self):
        self.server = subprocess.Popen(
            [sys.executable, '-m', 'fsyncstorage.server.runzeo', '-C',
             self.path('zeo.conf')], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)

    def kill(self):
        self.server.kill()
        self.server.wait()
