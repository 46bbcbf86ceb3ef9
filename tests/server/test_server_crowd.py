"""A crowd at the server: 200 clients, 50 of them busy, for two minutes.

No error, flat memory, and a tidy end.
"""

import os
import selectors
import signal
import time

from perf import light

from ..commands import SCRIPTS
from ..commands import Commands
from ..commands import answers
from ..support import PATIENCE

CONFIG = """
%import fsyncstorage
<zeo>
  address {socket}
</zeo>
<fsyncstorage 1>
  path {path}
</fsyncstorage>
"""

CLIENTS, BUSY = 200, 50
GROWTH = 1.3  # of the memory, from the first quarter of the time to the end


class Crowd(Commands):

    level = 3
    seconds = 120

    def setUp(self):
        super().setUp()
        self.socket = self.path('zeo.sock')
        with open(self.path('zeo.conf'), 'w') as config:
            config.write(CONFIG.format(socket=self.socket, path=self.path()))
        self.server = self.start(
            [*SCRIPTS['fsync-runzeo'], '-C', self.path('zeo.conf')],
            lambda: answers(self.socket))

    def memory(self):
        with open(f'/proc/{self.server.pid}/statm') as statm:
            return int(statm.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')

    def drive(self, clients, seconds):
        """The busy ones commit, all listen."""
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            for client in clients:
                selector.register(client.socket, selectors.EVENT_READ, client)
            committing = set(clients[:BUSY])
            for client in committing:
                client.commit()
            while committing:
                for key, _ in selector.select():
                    if key.data.receive():
                        if time.monotonic() < end:
                            key.data.commit()
                        else:
                            committing.discard(key.data)

    def test_crowd(self):
        clients = []
        for _ in range(CLIENTS):
            clients.append(light.Client(self.socket))
            self.addCleanup(clients[-1].close)
        self.drive(clients, self.seconds / 4)
        early = self.memory()
        self.drive(clients, self.seconds * 3 / 4)
        late = self.memory()
        commits = sum(len(client.durations) for client in clients)
        for client in clients:
            client.call('ping')
            self.assertEqual(client.tids_not_rising, 0)
            self.assertEqual(
                client.invalidations, commits - len(client.durations))
        self.assertLess(late, early * GROWTH)
        self.server.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        self.assertEqual(self.server.wait(PATIENCE), 0)
        print(f'  {commits} commits;'
              f' memory {early >> 20} then {late >> 20} MB;'
              f' ended within {time.monotonic() - begun:.2f} s')
        for word in 'ERROR', 'CRITICAL', 'Traceback':
            self.assertNotIn(word, self.said())
