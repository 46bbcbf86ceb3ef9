"""A server in a process of its own, and how its clients find it.

The program that is started (like `launcher`) and the driver talk in lines of
JSON.  The first line on the program's standard output is the address of the
server.  The program answers each line that it reads with what was used until
then.  When its standard input is closed, it ends.

The server has ended when the `with` ends.  If it dies before that, there is an
error, which contains the last line that it wrote.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import typing

from ..running import supervisor

#: In the directory of the server: the standard error of the program, and a log
#: that it may write.
ERRORS, LOG = 'server.err', 'server.log'

#: The connections of a process break before it has ended.
_DYING_SECONDS = 2
_ENDING_SECONDS = 10


@dataclasses.dataclass(frozen=True)
class Site:
    """A server that runs, and how a client opens its storage."""

    #: A `Server`, or something with its `sentinels` and its `usage`.
    server: typing.Any
    #: Where clients connect to.
    address: typing.Any
    #: Called by each client, in a process of its own.
    open: typing.Callable


class NoServer:
    """Stands for a server that does not exist, or cannot be asked."""

    sentinels = ()

    def __init__(self, **usage):
        self._used = usage

    def usage(self):
        return self._used


def tell(value):
    """The program calls this: send a line to the driver."""
    print(json.dumps(value), flush=True)


def answer(usage=dict):
    """The program calls this: answer until standard input is closed."""
    for _ in sys.stdin:
        tell(usage())


@contextlib.contextmanager
def running(program, directory, **options):
    """Yields a `Server` with its address.

    The program is the name of a module.  Its argument is JSON: the options,
    the directory, and the bond that it has to follow.
    """
    bond = supervisor.bond()
    options = {**options, 'directory': directory, 'bond': bond}
    with open(os.path.join(directory, ERRORS), 'wb') as errors:
        process = subprocess.Popen(
            [sys.executable, '-m', program, json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            text=True, pass_fds=[bond])
    server = Server(process)
    try:
        server.address = server.read()
        yield server
        server.usage()  # fails if it has died unnoticed
    except Exception as error:
        # The reason may be that the server died.
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(_DYING_SECONDS)
            raise ChildProcessError(
                f'the server died with exit code {code}:'
                f' {_last_words(directory)}') from error
        raise
    finally:
        _end(process)


class Server:

    def __init__(self, process):
        self._process = process
        #: These become readable when the server has died.
        self.sentinels = (process.stdout,)

    def usage(self):
        """Since the start: `cpu_seconds`, `syncs`, and what else the program
        counts."""
        with contextlib.suppress(BrokenPipeError):  # `read` raises an error
            print(file=self._process.stdin, flush=True)
        return self.read()

    def read(self):
        line = self._process.stdout.readline()
        if not line:
            raise EOFError('the server ended')
        return json.loads(line)


def _last_words(directory):
    for name in ERRORS, LOG:
        with contextlib.suppress(FileNotFoundError):
            text = pathlib.Path(directory, name).read_text('utf-8', 'replace')
            for line in reversed(text.splitlines()):
                if line.strip() and not line.startswith('For help'):
                    return line.strip()
    return 'it said nothing'


def _end(process):
    # Closing writes what the program did not read before it died.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(_ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
