"""The site of examples/zope, as its page says: built, started, restarted.

Run as a script, it is built in a scratch directory, and its server restarted
again and again while it is used::

    python -m tests.sites.zope_site --minutes 10 --restarts 10

The time is that of the load; to build it takes some minutes more, and the
package index.
"""

import argparse
import contextlib
import dataclasses
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from perf.ports import free_port

from ..commands import answers
from ..support import Thread
from ..support import until
from .zopes import EXAMPLE
from .zopes import Load
from .zopes import Zope

#: What buildout has downloaded is kept for the next time.
EGGS = pathlib.Path(sys.prefix) / 'buildout-eggs'

#: What a Zope may take to go on when its server is back, in seconds.
GRACE = 3

#: Seconds; to download everything may take some minutes.
BUILD = 1800

CHANGES = 10  # of each writer, before the first restart and after the last


class Site:

    def __init__(self, directory):
        self.directory = pathlib.Path(directory) / 'site'
        shutil.copytree(EXAMPLE / 'src', self.directory / 'src')
        self.address = '127.0.0.1', free_port()
        self.metrics = '127.0.0.1', free_port()
        ports = {8100: self.address[1], 8190: self.metrics[1],
                 8081: free_port(), 8082: free_port()}
        for name in 'buildout.cfg', 'zeo.conf':
            (self.directory / name).write_text(re.sub(
                '127.0.0.1:([0-9]+)',
                lambda found: f'127.0.0.1:{ports[int(found[1])]}',
                (EXAMPLE / name).read_text()))
        self.zopes = [Zope(ports[8081]), Zope(ports[8082])]
        self._started = []

    def build(self):
        self.run(sys.executable, '-m', 'venv', 'venv')
        self.run('venv/bin/pip', 'install', 'zc.buildout >= 6')
        self.run('venv/bin/buildout',
                 f'buildout:develop={EXAMPLE.parents[1]}',
                 f'buildout:eggs-directory={EGGS}', 'buildout:newest=false')

    def start(self):
        self._start('zeo')
        until(lambda: answers(self.address), 'a ZEO server')
        # The first one makes the root of the database.
        for name, zope in zip(('one', 'two'), self.zopes):
            self._start(name)
            until(zope.is_up, f'{name} that is up')

    def stop(self):
        """All of them, also when one cannot be stopped."""
        with contextlib.ExitStack() as stack:
            for script in self._started:
                stack.callback(self.run, script, 'stop')
            self._started.clear()

    def restart_server(self):
        """As kill_server, by the control script."""
        server = self._server()
        script = Thread(self.run, 'bin/zeo', 'restart')
        times = self._until_back(server)
        script.result()
        return times

    def kill_server(self):
        """When it was gone, and when it answered again; what has started it
        does so again by itself."""
        server = self._server()
        os.kill(server, signal.SIGKILL)
        return self._until_back(server)

    def _server(self):
        """Its process id."""
        return int(re.search(
            'pid=([0-9]+)', self.run('bin/zeo', 'status'))[1])

    def _until_back(self, server):
        until(lambda: not _exists(server), 'the end of the server')
        gone = time.monotonic()
        until(lambda: answers(self.address), 'the server')
        return gone, time.monotonic()

    def _start(self, name):
        self._started.append(f'bin/{name}')
        self.run(f'bin/{name}', 'start')

    def run(self, *command):
        environment = dict(os.environ)
        environment.pop('PYTHONPATH', None)
        done = subprocess.run(
            command, cwd=self.directory, env=environment, text=True,
            timeout=BUILD, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise AssertionError(
                f'{" ".join(map(str, command))} failed:\n{done.stdout}')
        return done.stdout


def _exists(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def built():
    """A site that runs; it is stopped and removed in the end."""
    with tempfile.TemporaryDirectory(prefix='fsyncstorage-') as directory:
        site = Site(directory)
        site.build()
        try:
            site.start()
            yield site
        finally:
            site.stop()


@dataclasses.dataclass
class Restart:

    how: str
    gone: float         # when the server had ended
    back: float         # when it answered again
    gaps: list          # of each Zope: seconds without a success

    @property
    def seconds(self):
        return self.back - self.gone

    @property
    def in_time(self):
        return max(self.gaps) <= self.seconds + GRACE

    def __str__(self):
        gaps = ', '.join(f'{gap:.1f}' for gap in self.gaps)
        return (f'{self.how}: the server was away for {self.seconds:.1f} s,'
                f' the Zopes without a success for {gaps} s')


def restart_often(site, seconds, number):
    """Use the site, and restart its server so often in this time."""
    ways = itertools.cycle({
        'kill -9': site.kill_server,
        'bin/zeo restart': site.restart_server}.items())
    load = Load(site.zopes)
    restarts = []
    with load.running():
        load.wait_for_changes(CHANGES)
        for how, restart in itertools.islice(ways, number):
            restarts.append(Restart(how, *restart(), []))
            threading.Event().wait(
                restarts[-1].gone + seconds / number - time.monotonic())
        load.wait_for_changes(CHANGES)
    load.check()
    for restart in restarts:
        restart.gaps = load.gaps(restart.gone, restart.back + GRACE)
    return load, restarts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--minutes', type=float, default=10)
    parser.add_argument('--restarts', type=int, default=10)
    options = parser.parse_args()
    with built() as site:
        load, restarts = restart_often(
            site, options.minutes * 60, options.restarts)
    print(*restarts, load, sep='\n')
    return 0 if all(restart.in_time for restart in restarts) else 1


if __name__ == '__main__':
    sys.exit(main())
