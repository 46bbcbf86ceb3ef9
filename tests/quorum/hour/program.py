"""A process on a host, and what it says, in a file."""

import os
import signal
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *3 * ['..']))
#: Bytes of what a process says that are looked at when something is wrong.
TAIL = 3000


class Program:

    def __init__(self, host, directory, command):
        self.host = host
        self.directory = directory
        self.command = command
        self.said_in = os.path.join(directory, f'{host.name}.log')
        self.environment = {
            **os.environ, 'PYTHONFAULTHANDLER': '1',
            'PYTHONPATH': os.pathsep.join([ROOT, *sys.path])}
        self.is_frozen = False
        #: It was started, and neither killed nor asked to end.
        self.is_to_run = False
        self.process = None

    def start(self, *more, **options):
        self.is_to_run = True
        with open(self.said_in, 'ab') as said:
            self.process = subprocess.Popen(
                [*self.host.inside, *self.command, *more], stderr=said,
                cwd=self.directory, env=self.environment,
                **{'stdin': subprocess.DEVNULL, 'stdout': said, **options})
        self.is_frozen = False

    @property
    def runs(self):
        return self.process is not None and self.process.poll() is None

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)
        self.is_frozen = False

    def show_threads(self):
        """Where they are, among what it says; it ends."""
        if self.runs:
            if self.is_frozen:
                self.thaw()
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()

    def terminate(self):
        self.is_to_run = False
        self.process.terminate()

    def kill(self):
        """As if its machine had lost its power, but for its disk."""
        self.is_to_run = False
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def last_words(self):
        try:
            with open(self.said_in, 'rb') as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - TAIL))
                return file.read().decode(errors='replace')
        except FileNotFoundError:
            return ''
