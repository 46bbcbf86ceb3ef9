"""Commands that a user would type, as processes that end with the test."""

import os
import subprocess
import sys

from .server import light
from .support import TestCase
from .support import until

#: What the console scripts are where none are installed.
SCRIPTS = {
    'fsync-quorum': (
        sys.executable, '-m', 'fsyncstorage.fsyncquorum.commandline'),
    'fsync-runzeo': (sys.executable, '-m', 'fsyncstorage.server.runzeo'),
}


class Commands(TestCase):
    """In a directory of its own; what they say is in the file `said`."""

    def setUp(self):
        super().setUp()
        said = open(self.path('said'), 'ab')
        self.addCleanup(said.close)
        #: Of each process.
        self.options = {
            'cwd': self.directory, 'stdin': subprocess.DEVNULL,
            'stdout': said, 'stderr': subprocess.STDOUT,
            'env': {**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}}

    def said(self):
        with open(self.path('said'), errors='replace') as file:
            return file.read()

    def start(self, command, is_up):
        """A process; return when it is up."""
        process = subprocess.Popen(command, **self.options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until(lambda: process.poll() is not None or is_up(),
              f'{command} that is up')
        if process.poll() is not None:
            self.fail(self.said())
        return process


def answers(address):
    """Is there a ZEO server?"""
    try:
        light.Client(address).close()
    except OSError:
        return False
    return True
