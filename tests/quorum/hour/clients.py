"""The processes that commit, as the run sees them."""

import json
import os
import subprocess
import sys
import threading

from .program import Program

#: Of each process.
WORKERS = 3
#: Numbers of marks are left out when a process is started again.
A_RUN = 1_000_000


class Client(Program):

    def __init__(self, host, directory, kind, servers, seed):
        self.kind = kind
        self.name = host.name
        self.workers = [f'{host.name}.{number}' for number in range(WORKERS)]
        self._settings = {
            'kind': kind, 'servers': servers, 'seed': seed,
            'workers': self.workers,
            'notes': os.path.join(directory, 'notes'),
            'newest': os.path.join(directory, 'newest'),
            'blobs': os.path.join(directory, f'blobs-{host.name}')}
        self._runs = 0
        #: The last thing that it has said, and the end of its last pack.
        self.answer = self.packed = ''
        super().__init__(host, directory, [
            sys.executable, '-m', 'tests.quorum.hour.load'])

    def make(self, workers):
        """The database; return when it is there."""
        super().start(json.dumps(
            {**self._settings, 'kind': 'make', 'workers': workers}))
        if self.process.wait(60):
            raise AssertionError(f'no database: {self.last_words()}')

    def start(self):
        self.answer = ''
        self._runs += 1
        super().start(
            json.dumps({**self._settings, 'from': self._runs * A_RUN,
                        'seed': f'{self._settings["seed"]} {self._runs}'}),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._listen, args=[self.process],
                         name=f'listens to {self.name}', daemon=True).start()

    def _listen(self, process):
        with process.stdout:
            for line in process.stdout:
                if line.startswith(('packed', 'no pack')):
                    self.packed = line.strip()
                elif not line.startswith('packing'):
                    self.answer = line.strip()

    def tell(self, command):
        if command == 'pack':
            self.packed = ''
        else:
            self.answer = ''
        try:
            self.process.stdin.write(command + '\n')
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended: whoever waits for its answer finds that

    def kill(self):
        super().kill()
        if self.process is not None:
            self.process.stdin.close()
