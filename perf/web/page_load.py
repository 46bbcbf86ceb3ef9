"""Processes that load a WSGI server: each asks, reads the answer, asks again.

They are clients of `http.client`, with a new connection for each request, as
`ab` makes them and as nginx does in front of such a server.  A connection that
is kept would stay with the process that took it, however busy that is.

A write adds one to a counter of its own, and must be answered with how often
that was done: so no answered change is lost unseen.
"""

import functools
import http.client

from .. import statistics
from ..campaign import Race
from ..processes import Stretch
from ..processes import run as run_clients
from ..processes import seconds as seconds_of
from ..processes import timed
from . import app
from . import servers

#: An answer that takes longer is an error.
_TIMEOUT = 30


class WrongAnswer(Exception):
    """The message is one line."""


def race(**settings):
    return Race(
        'wsgi', settings, measure,
        ('requests_per_second', 'p50_seconds', 'p99_seconds'))


def measure(contestant, directory, *, server, processes, threads, concurrency,
            write, seconds, **site_settings):
    """Time the requests to a server over one contestant; the figures."""
    with contestant.running(directory, **site_settings) as site:
        app.plant(site, concurrency)
        with servers.running(server, site, processes, threads) as web:
            stretches = run_clients(web, [
                loader(web.address, number, write, seconds)
                for number in range(concurrency)]).results
    durations = [one for each in stretches for one in each.durations]
    took = seconds_of(stretches)
    return {
        'requests': len(durations),
        'seconds': took,
        'requests_per_second': len(durations) / took,
        'p50_seconds': statistics.percentile(durations, 50),
        'p99_seconds': statistics.percentile(durations, 99),
        'loaders_cpu': sum(each.cpu for each in stretches) / took,
    }


def loader(address, number, write, seconds):
    """A job that returns a stretch.

    So many percent of its requests are writes, evenly spread.
    """

    def requests():
        done = written = 0
        while True:
            done += 1
            if done * write // 100 > written:
                written += 1
                yield functools.partial(_write, address, number, written)
            else:
                yield functools.partial(_ask, address, 'GET', '/')

    def job(start):
        _ask(address, 'GET', '/')
        start()
        return timed(requests(), seconds)

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
