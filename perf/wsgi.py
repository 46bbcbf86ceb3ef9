"""A web application over ZEO: one process with threads, or several processes?

A small application reads a page and ten objects in it.  It runs in waitress
(one process with four threads) and in gunicorn (one process with four threads,
and four processes with one).  README.rst says how to read the tables.

Each client is a process that sends requests one after the other, by
`http.client`, with a new connection for each request, as an nginx in front of
such a server makes them.  A connection that is kept would stay with the
process that accepted it, even if that is busy and another one is not.
"""

import functools
import importlib.util
import itertools
import os

from rich.text import Text

from fsyncstorage.timing.results.wording import count
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import loops
from fsyncstorage.timing.running import population
from fsyncstorage.timing.running.campaign import Race
from fsyncstorage.timing.servers import served
from fsyncstorage.timing.servers.zeosites import CONTESTANTS

from . import history
from . import questions
from .campaign import Campaign
from .claims import Claim
from .web import applications
from .web import load
from .web import program
from .web import sites

#: By name: a server, its processes, and the threads of each.
ONE, MANY = 'gunicorn, 1 x 4', 'gunicorn, 4 x 1'
LAYOUTS = {
    'waitress, 1 x 4': ('waitress', 1, 4),
    ONE: ('gunicorn', 1, 4),
    MANY: ('gunicorn', 4, 1),
}

#: Requests at a time, as in a post of 2009.
CONCURRENCY = _, CROWD = 1, 8

#: In a full run, and in a quick run.
SECONDS = 3.0, 0.5

FIGURE = 'requests_per_second'


def races(quick):
    return [
        race(layout=layout, concurrency=concurrency,
             seconds=SECONDS[quick], sync_latency=0.0,
             loop=loops.installed()[-1],  # as ZEO does
             socket=False)
        for concurrency in CONCURRENCY for layout in LAYOUTS]


def race(**settings):
    return Race('wsgi', settings, measure,
                (FIGURE, 'p50_seconds', 'p99_seconds'))


def measure(contestant, directory, *, layout, concurrency, seconds,
            **site_settings):
    """Time requests to a server over one contestant; return the figures."""
    server, processes, threads = LAYOUTS[layout]
    home = os.path.join(directory, 'web')
    sites.make_cache(home)
    with contestant.running(directory, **site_settings) as site:
        population.plant(
            site, population.small(page=applications.CHILDREN))
        with served.running(
                program.__name__, home, server=server,
                processes=processes, threads=threads,
                application=applications.Page.__name__,
                storage=sites.section(contestant.name, home, site.address)
                ) as web:
            stretches = crew.processes(
                served.Site(web, web.address, None),
                [asking(web.address, seconds)] * concurrency).results
    durations = crew.durations(stretches)
    took = crew.seconds(stretches)
    return {
        'requests': len(durations),
        'seconds': took,
        FIGURE: len(durations) / took,
        **crew.percentiles(durations),
        'loaders_cpu': sum(each.cpu for each in stretches) / took,
    }


def asking(address, seconds):
    """A job that returns a stretch."""
    ask = functools.partial(load.fetch, address, '/')

    def job(start):
        ask()
        start()
        return crew.timed(itertools.repeat(ask), seconds)

    return job


def show(document, console):
    questions.show(document, console)
    console.print(Text(f'{history.WSGI_2009}\n', 'dim'))


def claims(document):
    """Several processes are not slower than one if several requests wait."""
    for name in document['contestants']:
        yield Claim(
            f'{name}: {MANY} against {ONE}, {count(CROWD, "request")} at a'
            ' time', 'wsgi', {'layout': MANY, 'concurrency': CROWD}, name,
            FIGURE, against=name, at_least=1.0,
            against_settings={'layout': ONE, 'concurrency': CROWD})


def obstacle(directory):
    for server in program.SERVERS:
        if importlib.util.find_spec(server) is None:
            return f'{server} is not installed'
    return None


CAMPAIGNS = [Campaign(
    'wsgi', 'a web application: one process with threads, or several',
    [CONTESTANTS[name] for name in (sites.STOCK, sites.OURS)], races,
    rounds=7, claims=claims, show=show, obstacle=obstacle)]
