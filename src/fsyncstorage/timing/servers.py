"""The ZEO servers that can take part, and a process for each that runs.

Server processes serve a new database in a directory, and are gone when the
`with` ends.  One that dies on its own is an error that says its last words.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys

from . import bond

STOCK = 'ZEO.runzeo'
OURS = 'fsyncstorage.server.runzeo'

FILESTORAGE = """\
<filestorage 1>
  path Data.fs
</filestorage>
"""

FSYNCSTORAGE = """\
%import fsyncstorage
<fsyncstorage 1>
  path Data.fs
  durability group-commit
</fsyncstorage>
"""

#: Stock writes a line for each commit that more than three wait for: it does
#: so in operation, too.
CONFIGURATION = """\
<zeo>
  address {address}
</zeo>
<eventlog>
  level info
  <logfile>
    path server.log
  </logfile>
</eventlog>
{storage}"""

#: Relative to the directory of the server.
CONFIGURATION_FILE, ERRORS, LOG = 'zeo.conf', 'server.err', 'server.log'

TCP, SOCKET = '127.0.0.1:0', './zeo.sock'

#: A connection is seen to break before the process that broke it is gone.
_DYING_SECONDS = 2
_ENDING_SECONDS = 10


class ServerDied(Exception):
    """The message is one line."""


@dataclasses.dataclass(frozen=True)
class Contestant:
    name: str
    summary: str
    #: Has a function `main` that takes the arguments of runzeo.
    module: str
    #: Its section in the configuration.
    storage: str


CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        Contestant('zeo', 'runzeo of ZEO, FileStorage', STOCK, FILESTORAGE),
        Contestant(
            'zeo:fsyncstorage', 'runzeo of ZEO, FsyncStorage (group-commit)',
            STOCK, FSYNCSTORAGE),
        Contestant(
            'fsync-zeo', 'fsync-runzeo, FsyncStorage (group-commit)',
            OURS, FSYNCSTORAGE),
    )
}


@contextlib.contextmanager
def running(contestant, directory, *, loop, sync_latency, socket):
    """A `Server` on an empty directory."""
    path = os.path.join(directory, CONFIGURATION_FILE)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(CONFIGURATION.format(
            address=SOCKET if socket else TCP, storage=contestant.storage))
    server = Server(directory, {
        'module': contestant.module,
        'configuration': CONFIGURATION_FILE,
        'directory': directory,
        'loop': loop,
        'sync_latency': sync_latency,
        'bond': bond.number(),
    })
    try:
        server.wait_for_address()
        yield server
    except Exception as error:
        server.raise_if_dead(error)
        raise
    finally:
        server.end()


class Server:
    """A server process; `address` is what clients connect to."""

    def __init__(self, directory, options):
        self._directory = directory
        with open(os.path.join(directory, ERRORS), 'wb') as errors:
            self._process = subprocess.Popen(
                [sys.executable, '-m', 'fsyncstorage.timing.launcher',
                 json.dumps(options)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True, pass_fds=[options['bond']])
        #: Can be read from when the server is dead.
        self.sentinel = self._process.stdout

    def wait_for_address(self):
        address = self._read()
        self.address = (
            tuple(address) if isinstance(address, list)
            else os.path.join(self._directory, address))

    def usage(self):
        """What it used since its start: `cpu_seconds`, `syncs`."""
        try:
            print(file=self._process.stdin, flush=True)
        except BrokenPipeError:
            pass  # it is dead, as reading tells
        return self._read()

    def _read(self):
        line = self._process.stdout.readline()
        if not line:
            raise EOFError('the server ended')
        return json.loads(line)

    def raise_if_dead(self, error):
        """The error happened here; perhaps because the server died."""
        try:
            code = self._process.wait(_DYING_SECONDS)
        except subprocess.TimeoutExpired:
            return
        raise ServerDied(
            f'the server died with exit code {code}: {self._last_words()}'
        ) from error

    def _last_words(self):
        for name in (ERRORS, LOG):
            path = os.path.join(self._directory, name)
            with contextlib.suppress(FileNotFoundError), \
                    open(path, encoding='utf-8', errors='replace') as file:
                lines = [
                    line.strip() for line in file
                    if line.strip() and not line.startswith('For help')]
                if lines:
                    return lines[-1]
        return 'it said nothing'

    def end(self):
        self._process.stdin.close()
        try:
            self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
