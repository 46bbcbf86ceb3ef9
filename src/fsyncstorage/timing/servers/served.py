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
import subprocess
import sys
import typing

from .. import supervisor

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
    server = Server(directory, program, {
        **options, 'directory': directory, 'bond': supervisor.bond()})
    try:
        server.address = server.read()
        yield server
        server.usage()  # nobody may have missed its death
    except Exception as error:
        server.raise_if_dead(error)
        raise
    finally:
        server.end()


class Server:

    def __init__(self, directory, program, options):
        self._directory = directory
        with open(os.path.join(directory, ERRORS), 'wb') as errors:
            self._process = subprocess.Popen(
                [sys.executable, '-m', program, json.dumps(options)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True, pass_fds=[options['bond']])
        #: Can be read from when the server is dead.
        self.sentinels = (self._process.stdout,)

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
        # What it died before it could read is still to be written.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
