"""A server in a process of its own, and how its clients find it.

The process is forked.  It talks to the driver over a pipe: first it tells its
address, then it answers each message with what was used until then.  When the
driver closes its end, the process ends.

The server has ended when the `with` ends.  If it dies before that, there is an
error, which contains the last line that it wrote.
"""

import contextlib
import dataclasses
import os
import pathlib
import sys
import typing

from . import supervisor

#: In the directory of the server: the standard error of its process, and a log
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


class Server:

    def __init__(self, process, pipe):
        self.process, self._pipe = process, pipe
        self.address = pipe.recv()
        #: These become readable when the server has died.
        self.sentinels = (process.sentinel,)

    def usage(self):
        """Since the start: what the process tells, like `cpu_seconds`."""
        self._pipe.send(None)
        return self._pipe.recv()


def answer(pipe, usage=dict):
    """The process calls this: answer until the driver closes its end."""
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            pipe.recv()
            pipe.send(usage())


@contextlib.contextmanager
def running(serve, directory, **options):
    """Yields a `Server`.

    `serve` is called in the process, in the directory, with a pipe and the
    options; the server ends when it returns.
    """
    with supervisor.child(_work, directory, serve, options,
                          patience=_ENDING_SECONDS) as (process, pipe):
        try:
            server = Server(process, pipe)
            yield server
            server.usage()  # fails if it has died unnoticed
        except Exception as error:
            # The reason may be that the server died.
            process.join(_DYING_SECONDS)
            if process.exitcode is None:
                raise
            raise ChildProcessError(
                f'the server died with exit code {process.exitcode}:'
                f' {_last_words(directory)}') from error


def _work(pipe, directory, serve, options):
    os.chdir(directory)
    with open(ERRORS, 'wb') as errors:
        for standard in 1, 2:
            os.dup2(errors.fileno(), standard)
    sys.stderr = open(2, 'w', buffering=1, closefd=False)
    try:
        serve(pipe, **options)
    except Exception as error:
        sys.exit(supervisor.one_line(error))


def _last_words(directory):
    for name in ERRORS, LOG:
        with contextlib.suppress(FileNotFoundError):
            text = pathlib.Path(directory, name).read_text('utf-8', 'replace')
            for line in reversed(text.splitlines()):
                if line.strip() and not line.startswith('For help'):
                    return line.strip()
    return 'it said nothing'
