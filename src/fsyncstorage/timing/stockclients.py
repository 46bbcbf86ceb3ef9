"""Stock ZEO clients, each in a process of its own, that start together.

The counterpart of `crew` for processes.  They are forked, and die with the
sample that they serve.
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import time

import ZODB

from . import bond
from .child import one_line

_FORK = multiprocessing.get_context('fork')

#: For a client to find its server, and for an ended one to exit.
_CONNECT_SECONDS = 30
_EXIT_SECONDS = 10


class ClientFailed(Exception):
    """The message is one line."""


@contextlib.contextmanager
def database(address):
    """A database of a stock client, with an empty cache."""
    from ZEO.ClientStorage import ClientStorage  # an extra of the package
    db = ZODB.DB(ClientStorage(address, wait_timeout=_CONNECT_SECONDS))
    try:
        yield db
    finally:
        db.close()


def run(server, jobs):
    """The results of the jobs, in their order, and the seconds it took.

    A job is called with a function `start`: it prepares itself, calls
    `start()` once to wait for the others, works, and returns its result.  The
    time runs from when the last job was ready to when the last one was done.
    """
    clients = [_Client(job) for job in jobs]
    try:
        _received(server, clients)
        began = time.perf_counter()
        for client in clients:
            client.pipe.send('start')
        answers = _received(server, clients)
        for client in clients:
            client.process.join(_EXIT_SECONDS)
    finally:
        for client in clients:
            client.end()
    results, ends = zip(*answers)
    return list(results), max(ends) - began


class _Client:

    def __init__(self, job):
        self.pipe, theirs = _FORK.Pipe()
        self.process = _FORK.Process(target=_work, args=(theirs, job))
        self.process.start()
        theirs.close()

    def receive(self):
        try:
            answer, failure = self.pipe.recv()
        except EOFError:
            answer, failure = None, 'its process died'
        if failure is not None:
            raise ClientFailed(f'a client failed: {failure}')
        return answer

    def end(self):
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _received(server, clients):
    """One answer of each; an error as soon as one fails, or the server."""
    answers = {}
    while len(answers) < len(clients):
        waiting = {
            client.pipe: client for client in clients
            if client not in answers}
        ready = multiprocessing.connection.wait([*waiting, server.sentinel])
        if server.sentinel in ready:
            raise EOFError('the server ended')
        for pipe in ready:
            answers[waiting[pipe]] = waiting[pipe].receive()
    return [answers[client] for client in clients]


def _work(pipe, job):
    bond.follow()

    def start():
        pipe.send((None, None))
        pipe.recv()

    try:
        result = job(start)
        pipe.send(((result, time.perf_counter()), None))
    except BaseException as error:
        pipe.send((None, one_line(error)))
