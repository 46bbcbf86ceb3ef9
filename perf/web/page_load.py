"""Processes that load a WSGI server: each asks, reads the answer, asks again.

They are clients of `http.client`, with a new connection for each request, as
`ab` makes them and as nginx does in front of such a server.  A connection that
is kept would stay with the process that took it, however busy that is.

A write adds one to a counter of its own, and must be answered with how often
that was done: so no answered change is lost unseen.
"""

import http.client
import time

from .. import statistics
from ..campaign import Race
from ..processes import Stretch
from ..processes import run as run_clients
from ..processes import seconds as seconds_of
from . import app
from . import servers

#: An answer that takes longer is an error.
_TIMEOUT = 30


class WrongAnswer(Exception):
    """The message is one line."""


def race(**settings):
    slowed = settings['sync_latency'] > 0
    return Race(
        'wsgi', settings, measure,
        ('requests_per_second', 'p50_seconds', 'p99_seconds'),
        suits=lambda contestant: contestant.can_be_slowed or not slowed)


def measure(contestant, directory, *, server, processes, threads, concurrency,
            write, seconds, **site_settings):
    """Time the requests to a server over one contestant; the figures."""
    with contestant.running(directory, **site_settings) as site:
        app.plant(site, concurrency)
        with servers.running(server, site, processes, threads) as web:
            found = run_clients(web, [
                loader(web.address, number, write, seconds)
                for number in range(concurrency)])
    stretches, cpu = zip(*found)
    durations = [one for each in stretches for one in each.transactions]
    took = seconds_of(stretches)
    return {
        'requests': len(durations),
        'seconds': took,
        'requests_per_second': len(durations) / took,
        'p50_seconds': statistics.percentile(durations, 50),
        'p99_seconds': statistics.percentile(durations, 99),
        'loaders_cpu': sum(cpu) / took,
    }


def loader(address, number, write, seconds):
    """A job that returns a stretch, and the processor time that it took.

    So many percent of its requests are writes, evenly spread.
    """

    def job(start):
        _ask(address, 'GET', '/')
        start()
        cpu, began = time.process_time(), time.perf_counter()
        now, durations, written = began, [], 0
        while not durations or now < began + seconds:
            begin = time.perf_counter()
            if (len(durations) + 1) * write // 100 > written:
                written += 1
                _write(address, number, written)
            else:
                _ask(address, 'GET', '/')
            now = time.perf_counter()
            durations.append(now - begin)
        return Stretch(began, now, durations), time.process_time() - cpu

    return job


def _write(address, number, expected):
    answer = _ask(address, 'POST', f'/{number}')
    if int(answer) != expected:
        raise WrongAnswer(
            f'after {expected} answered changes there are {answer}')


def _ask(address, method, path):
    connection = http.client.HTTPConnection(*address, timeout=_TIMEOUT)
    try:
        connection.request(method, path, headers={'Connection': 'close'})
        response = connection.getresponse()
        answer = response.read().decode()
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise WrongAnswer(f'{method} {path}: {response.status}: {answer}')
    return answer
