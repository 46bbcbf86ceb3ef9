"""Client processes that start together.

The counterpart of `crew`, whose threads share a database.  They are forked,
and die with the sample that they serve.
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import typing

import ZODB

from . import bond
from .child import one_line

_FORK = multiprocessing.get_context('fork')

#: Objects that ZODB keeps in memory: more than any workload has.
_ROOM = 1 << 20

#: For a client that has ended to exit.
_EXIT_SECONDS = 10


class ClientFailed(Exception):
    """The message is one line."""


class Stretch(typing.NamedTuple):
    """What one client did between two moments, on the clock of them all."""

    began: float
    ended: float
    #: How long each transaction took.
    transactions: list
    #: How long each object took, if they were timed one by one.
    objects: list = []


def seconds(stretches):
    """From the first one's begin to the last one's end."""
    return (max(each.ended for each in stretches)
            - min(each.began for each in stretches))


@contextlib.contextmanager
def database(site):
    """A database of a client, with empty caches."""
    db = ZODB.DB(site.open(), cache_size=_ROOM)
    try:
        yield db
    finally:
        db.close()


def run(site, jobs):
    """The results of the jobs, in their order.

    A job is called with a function `start`: it prepares itself, calls
    `start()` to wait for the others, works, and returns its result.  It may
    prepare and start several times, if the others do the same.
    """
    clients = [_Client(job) for job in jobs]
    try:
        answers = _received(site, clients)
        while None in answers:
            for client in clients:
                client.pipe.send('start')
            answers = _received(site, clients)
        for client in clients:
            client.process.join(_EXIT_SECONDS)
    finally:
        for client in clients:
            client.end()
    return [result for result, in answers]


class _Client:

    def __init__(self, job):
        self.pipe, theirs = _FORK.Pipe()
        self.process = _FORK.Process(target=_work, args=(theirs, job))
        self.process.start()
        theirs.close()

    def receive(self):
        """None when it is ready; a tuple with the result when it is done."""
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


def _received(site, clients):
    """One answer of each; an error as soon as one fails, or the server."""
    sentinels = set(site.server.sentinels)
    answers = {}
    while len(answers) < len(clients):
        waiting = {
            client.pipe: client for client in clients
            if client not in answers}
        ready = multiprocessing.connection.wait([*waiting, *sentinels])
        if sentinels.intersection(ready):
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
        pipe.send(((result,), None))
    except BaseException as error:
        pipe.send((None, one_line(error)))
