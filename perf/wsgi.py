"""A web application over ZEO: one process with threads, or several processes?

A small application reads a page and ten objects in it; of a second table, ten
of a hundred requests change a counter instead.  It runs in waitress (one
process with four threads) and in gunicorn (one process with four threads, and
four processes with one).  README.rst says how to read the tables.

Each client is a process that asks, reads the answer, and asks again, by
`http.client`, with a new connection for each request, as nginx makes them in
front of such a server.  A connection that is kept would stay with the process
that took it, however busy that is.  A write adds one to a counter of its own,
and must be answered with how often that was done: so no answered change is
lost unseen.
"""

import functools
import http.client
import importlib.util
import os

from rich.text import Text

from fsyncstorage.timing import loops
from fsyncstorage.timing import pinning
from fsyncstorage.timing import processes as clients
from fsyncstorage.timing import statistics
from fsyncstorage.timing import tables
from fsyncstorage.timing.campaign import Race
from fsyncstorage.timing.document import figures
from fsyncstorage.timing.document import values
from fsyncstorage.timing.servers import served
from fsyncstorage.timing.statistics import median
from fsyncstorage.timing.wording import count
from fsyncstorage.timing.wording import duration
from fsyncstorage.timing.wording import number
from fsyncstorage.timing.wording import times
from fsyncstorage.timing.zeo.phrases import title
from fsyncstorage.timing.zeo.sites import CONTESTANTS

from . import history
from .campaign import Campaign
from .web import page
from .web import program

#: Servers, each with its processes and the threads of one.
LAYOUTS = ('waitress', 1, 4), ('gunicorn', 1, 4), ('gunicorn', 4, 1)

#: What the application opens.
SECTIONS = {
    'zeo': """\
<zeoclient>
  server {}:{}
</zeoclient>
""",
    'fsync-client': """\
%import fsyncstorage.client
<fsyncclient>
  server {}:{}
</fsyncclient>
""",
}

#: Requests at a time, as in a post of 2009; and how many of a hundred change
#: something.
CONCURRENCY, WRITES = (1, 8), (0, 10)

SECONDS, QUICK_SECONDS = 3.0, 0.5

FIGURE = 'requests_per_second'

KEY = (
    'Requests a second: the median of the rounds, below it their range.'
    f' {tables.RATIO_KEY} 1 x 4 is one process with 4 threads. p50 and p99'
    ' are of one request. Clients make a connection for each request, and'
    ' share the processors with the servers: 100 % of CPU is one of them.')

#: An answer that takes longer is an error.
_TIMEOUT = 30


class WrongAnswer(Exception):
    """The message is one line."""


def races(quick, sync_seconds):
    return [
        race(server=server, processes=processes, threads=threads,
             concurrency=concurrency, write=write,
             seconds=QUICK_SECONDS if quick else SECONDS, sync_latency=0.0,
             loop=loops.installed()[-1],  # as ZEO does
             socket=False, pin=pinning.FREE)
        for write in WRITES
        for concurrency in CONCURRENCY
        for server, processes, threads in LAYOUTS]


def race(**settings):
    return Race('wsgi', settings, measure,
                (FIGURE, 'p50_seconds', 'p99_seconds'))


def measure(contestant, directory, *, server, processes, threads, concurrency,
            write, seconds, **site_settings):
    """Time the requests to a server over one contestant; the figures."""
    home = os.path.join(directory, 'web')
    os.mkdir(home)
    with contestant.running(directory, **site_settings) as site:
        page.plant(site, concurrency)
        with served.running(
                program.__name__, home, pinning.FREE, server=server,
                processes=processes, threads=threads,
                application=f'{page.__name__}.{page.Application.__name__}',
                storage=SECTIONS[contestant.name].format(*site.address),
                ) as web:
            stretches = clients.run(served.Site(web, web.address, None), [
                loader(web.address, number, write, seconds)
                for number in range(concurrency)]).results
    durations = clients.durations(stretches)
    took = clients.seconds(stretches)
    return {
        'requests': len(durations),
        'seconds': took,
        FIGURE: len(durations) / took,
        **clients.percentiles(durations),
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
        return clients.timed(requests(), seconds)

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


def show(document, console):
    tables.show_machine(document, console)
    for shared, races in _grouped(document):
        tables.show_table(
            console, title(shared, _requests(shared)),
            _table(document, shared, races))
    key = KEY.format(baseline=document['baseline'])
    console.print(Text(f'{key}\n{history.WSGI_2009_SOURCE}\n', 'dim'))


def _grouped(document):
    """What the races of a table share, and they by their layouts."""
    found = []
    for race in tables.races_of(document, 'wsgi'):
        shared = dict(document['races'][race]['settings'])
        layout = tuple(
            shared.pop(name) for name in ('server', 'processes', 'threads'))
        if not found or found[-1][0] != shared:
            found.append((shared, {}))
        found[-1][1][layout] = race
    return found


def _requests(settings):
    written = (f', {settings["write"]} % of them writes'
               if settings['write'] else '')
    return f'{count(settings["concurrency"], "request")} at a time{written}'


def _table(document, shared, races):
    table = tables.new_table()
    for server, processes, threads in races:
        table.add_column(f'{server}\n{processes} x {threads}', justify='right')
    first = next(iter(races.values()))
    for contestant in document['contestants']:
        table.add_row(contestant, *(
            _cell(document, race, first, contestant)
            for race in races.values()))
    historic = history.WSGI_2009.get(shared['concurrency'])
    if historic and not shared['write']:
        table.add_row('2009', *(
            number(historic[processes]) for _, processes, _ in races))
    return table


def _cell(document, race, first, contestant):

    def figure(name):
        return median(figures(document, race, contestant, name))

    def remarks():
        yield f'p50 {duration(figure("p50_seconds"))}'
        yield f'p99 {duration(figure("p99_seconds"))}'
        yield f'clients: {figure("loaders_cpu"):.0%} CPU'
        if race != first:
            yield from _beside_first(document, race, first, contestant)

    return tables.compared_cell(
        document, race, contestant, FIGURE, remarks())


def _beside_first(document, race, first, contestant):
    ratio = statistics.ratio(
        values(document, race, contestant, FIGURE),
        values(document, first, contestant, FIGURE))
    if ratio:
        mark = '' if statistics.carried(ratio) else '~'
        yield f'{mark}{times(ratio["of_medians"])} column 1'


def obstacle(directory):
    for server in program.SERVERS:
        if importlib.util.find_spec(server) is None:
            return f'{server} is not installed'
    return None


CAMPAIGNS = [Campaign(
    'wsgi', 'a web application: one process with threads, or several',
    [CONTESTANTS[name] for name in SECTIONS], races, rounds=7, show=show,
    obstacle=obstacle)]
