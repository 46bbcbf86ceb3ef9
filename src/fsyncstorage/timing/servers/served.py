"""A server in a process of its own, and what its clients need to know of it.

The program that is started (like `launcher`) and the class here talk in lines
of JSON.  The first line on the program's standard output is the
address of the server; each line that it reads is answered with what was used
until then.  When its standard input is closed it ends.

A server is gone when the `with` ends.  One that dies on its own is an error
that says its last words.
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

#: Standard error of the program, in the directory of the server; and the log
#: that it may write there.
ERRORS, LOG = 'server.err', 'server.log'

#: A connection is seen to break before the process that broke it is gone.
_DYING_SECONDS = 2
_ENDING_SECONDS = 10


class ServerDied(Exception):
    """The message is one line."""


@dataclasses.dataclass(frozen=True)
class Site:
    """A server that runs, and how a client opens its storage."""

    #: A `Server`, or something with its `sentinels` and its `usage`.
    server: typing.Any
    #: Where clients connect to.
    address: typing.Any
    #: Called by each client, in a process of its own.
    open: typing.Callable


class Nobody:
    """In the place of a server: there is none, or it is not ours to ask."""

    sentinels = ()

    def __init__(self, **usage):
        self._used = usage

    def usage(self):
        return self._used


def tell(value):
    """In the program: a line for the driver."""
    print(json.dumps(value), flush=True)


def answer(usage=dict):
    """In the program: until nobody can ask any more."""
    for _ in sys.stdin:
        tell(usage())


@contextlib.contextmanager
def running(program, directory, **options):
    """A `Server`, which has told its address.

    The program is the name of a module; it takes the options, with the
    directory and the bond that it is to follow, as JSON.
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
        server.usage()  # nobody may have missed its death
    except Exception as error:
        # It happened here; perhaps because the server died.
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(_DYING_SECONDS)
            raise ServerDied(f'the server died with exit code {code}:'
                             f' {_last_words(directory)}') from error
        raise
    finally:
        _end(process)


class Server:

    def __init__(self, process):
        self._process = process
        #: Can be read from when the server is dead.
        self.sentinels = (process.stdout,)

    def usage(self):
        """Since its start: `cpu_seconds`, `syncs`, and what else the program
        counts; as far as it is known."""
        with contextlib.suppress(BrokenPipeError):  # as reading tells
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
    # What it died before it could read is still to be written.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(_ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
