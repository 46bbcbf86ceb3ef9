"""Clients that start together, processes or threads, and what they measured.

A job is called with a function `start`: it prepares itself, calls `start()` to
wait for the others, works, and returns its result.  Processes are forked, and
end with their sample.  They may prepare and start several times, if all of
them do so the same number of times.
"""

import contextlib
import functools
import multiprocessing.connection
import threading
import time
import typing
from concurrent.futures import ThreadPoolExecutor

import transaction
import ZODB

from ..results.estimates import percentile
from . import supervisor

#: Objects that ZODB keeps in memory: more than any workload has.
_ROOM = 1 << 20


class Stretch(typing.NamedTuple):
    """What one client did between two times of a clock that all share."""

    began: float
    ended: float
    #: How long each request took: a transaction, most of the time.
    durations: list
    #: Processor time.
    cpu: float = 0.0
    #: How long each object took, if they were timed one by one.
    objects: list = []


def job(work):
    """Decorates a function whose last argument is `start`.

    Called with the other arguments, it returns a job.
    """
    return functools.partial(functools.partial, work)


def timed(requests, seconds=None, pause=0):
    """Make requests, one after the other; return a stretch.

    It ends after the last request, or, if `seconds` are given, when they have
    passed; at least one request is made.  `pause` is in seconds, too.
    """
    durations = []
    cpu = time.process_time()
    began = ended = time.perf_counter()
    for request in requests:
        begin = time.perf_counter()
        request()
        ended = time.perf_counter()
        durations.append(ended - begin)
        if seconds is not None and ended >= began + seconds:
            break
        if pause:
            time.sleep(pause)
    return Stretch(began, ended, durations, time.process_time() - cpu)


def seconds(stretches):
    """From the begin of the first one to the end of the last one."""
    return (max(each.ended for each in stretches)
            - min(each.began for each in stretches))


def durations(stretches):
    return [one for stretch in stretches for one in stretch.durations]


def rates(what, stretches, usage, each=1):
    """Figures of stretches in which a request was for `each` things.

    The processor time of a thing is that of all clients and the server
    together; if that of the server is not known, there is no such figure.
    """
    things = each * len(durations(stretches))
    found = {f'{what}_per_second': things / seconds(stretches)}
    if 'cpu_seconds' in usage:
        cpu = usage['cpu_seconds'] + sum(stretch.cpu for stretch in stretches)
        found[f'{what}_cpu_seconds'] = cpu / things
    return found


def commits(stretches, usage):
    """Figures of stretches whose requests were transactions."""
    times = durations(stretches)
    return {
        'transactions': len(times),
        'seconds': seconds(stretches),
        **rates('txn', stretches, usage),
        **percentiles(times),
    }


def percentiles(values, what=''):
    return {
        f'{what}p{percent}_seconds': percentile(values, percent)
        for percent in (50, 99)}


def times(values):
    """Percentiles, and the slowest one."""
    return {**percentiles(values), 'max_seconds': max(values)}


def busy(stretches, usage, name='clients'):
    """How many processors the clients and the server used, if known."""
    took = seconds(stretches)
    found = {f'{name}_cpu': sum(each.cpu for each in stretches) / took}
    if 'cpu_seconds' in usage:
        found['server_cpu'] = usage['cpu_seconds'] / took
    if 'syncs' in usage:
        found['syncs'] = usage['syncs']
    return found


@contextlib.contextmanager
def connected(site):
    """A client with empty caches: a transaction manager, and a connection."""
    with contextlib.closing(
            ZODB.DB(site.open(), cache_size=_ROOM)) as db:
        manager = transaction.TransactionManager()
        yield manager, db.open(manager)


def threads(jobs, usage=dict):
    """Run the jobs in threads; return what they return, and their usages.

    `usage` returns what all jobs have used until now; usages are from each
    start to the next, and to the end.  An error in one job is
    raised when all have ended.
    """
    usages = []
    barrier = threading.Barrier(
        len(jobs), action=lambda: usages.append(usage()))

    def work(job):
        try:
            return job(barrier.wait)
        except BaseException:
            barrier.abort()  # or the others would wait for this job
            raise

    with ThreadPoolExecutor(len(jobs)) as pool:
        working = [pool.submit(work, job) for job in jobs]
    for each in working:
        error = each.exception()
        if error and not isinstance(error, threading.BrokenBarrierError):
            raise error
    usages.append(usage())
    return [each.result() for each in working], _between(usages)


def processes(site, jobs):
    """Run the jobs in client processes of the site; return what they return,
    and what the server used from each start to the next, and to the end."""
    usages, answers = [], [None]
    with contextlib.ExitStack() as clients:
        pipes = [clients.enter_context(supervisor.child(_work, job))[1]
                 for job in jobs]
        while None in answers:
            if usages:
                for pipe in pipes:
                    pipe.send('start')
            answers = _answers(site, pipes)
            usages.append(site.server.usage())
    return [result for result, in answers], _between(usages)


def _between(usages):
    return [{name: after[name] - before[name] for name in after}
            for before, after in zip(usages, usages[1:])]


def _answers(site, pipes):
    """The next answer of each: None is `ready`, a tuple has the result.

    Raises an error as soon as a client or the server fails.
    """
    sentinels = set(site.server.sentinels)
    answers = {}
    while len(answers) < len(pipes):
        ready = multiprocessing.connection.wait(
            [*(pipe for pipe in pipes if pipe not in answers), *sentinels])
        if sentinels.intersection(ready):
            raise EOFError('the server ended')
        for pipe in ready:
            try:
                answers[pipe], failure = pipe.recv()
            except EOFError:
                failure = 'its process died'
            if failure is not None:
                raise ChildProcessError(f'a client failed: {failure}')
    return [answers[pipe] for pipe in pipes]


def _work(pipe, job):

    def start():
        pipe.send((None, None))
        pipe.recv()

    supervisor.answer(pipe, lambda: (job(start),))
