"""What requests for its metrics cost a server.

A server does the same work in turns without requests for metrics, and with one
each second.  The work: it commits for light connections; it answers reads; or
it has a crowd of waiting clients, or a few, each with a connection, a read
channel, and a transaction that holds an object.  The requests are for the
metrics alone, as from Prometheus; or for all `PAGES`, as if somebody also had
the live page open and ran fsync-top.

Both cases are measured in one process, moments apart, and take turns in being
first: two processes that do the same differ by more than is claimed.  The
processor time is that of all threads of the server.  The memory is the peak
with the crowd, minus that of a server without metrics.
"""

import contextlib
import dataclasses
import functools
import itertools
import pathlib
import re
import resource
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from ZODB.utils import maxtid

from fsyncstorage.client.readchannel import ReadChannel
from fsyncstorage.timing.running import campaign
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import loops
from fsyncstorage.timing.running import population
from fsyncstorage.timing.running.campaign import Race
from fsyncstorage.timing.servers import served
from fsyncstorage.timing.servers.zeosites import CONTESTANTS
from fsyncstorage.timing.zeo import light

from .campaign import Campaign
from .claims import Claim
from .web import load
from .web import memory

OFF = CONTESTANTS['fsync-zeo']
ON = dataclasses.replace(OFF, name='metrics', storage=OFF.storage.replace(
    '{blobs}', '<metrics>\n    address 127.0.0.1:0\n  </metrics>'))

#: In a full run, and in a quick run.
TURNS, CLIENTS, COMMITTERS = (16, 2), (1000, 50), 16

PAGES = {'metrics': ['/metrics'], 'all': ['/metrics', '/now', '/clients']}
#: Seconds of a turn, and between two scrapes: longer than an answer is kept.
SECONDS, EVERY = 2.0, 1.05
ALLOWED_MB = 20.0


def races(quick):
    settings = {'turns': TURNS[quick], 'loop': loops.installed()[-1],
                'sync_latency': 0.0, 'socket': False, 'pages': 'metrics'}
    return [*(Race(work.__name__, settings, functools.partial(in_turns, work),
                   ('quiet_cpu_seconds', 'asked_cpu_seconds'))
              for work in (commits, reads)),
            *(Race('crowd', settings | {
                'pages': pages, 'clients': CLIENTS[quick]}, in_a_crowd,
                ('scrape_cpu_seconds', 'more_mb', 'allowed_mb'))
              for pages in PAGES),
            Race('few', settings | {'clients': COMMITTERS}, in_a_crowd,
                 ('scrape_cpu_seconds',))]


def in_a_crowd(contestant, directory, *, clients, **settings):
    waits = functools.partial(crowd, clients)
    with campaign.directory(directory) as place:
        off = in_turns(waits, OFF, place, **settings | {'turns': 2})
    on = in_turns(waits, contestant, directory, **settings)
    return {**on, 'allowed_mb': ALLOWED_MB,
            'more_mb': on['peak_mb'] - off['peak_mb'],
            'scrape_cpu_seconds': (on['asked_cpu_seconds']
                                   - on['quiet_cpu_seconds']) / on['scrapes']}


def in_turns(work, contestant, directory, *, turns, pages, **settings):
    """Processor time, and scrapes, for each thing that the work has done."""
    cpu, done, scrapes = [0.0, 0.0], [0, 0], 0
    with contestant.running(directory, **settings) as site, work(site) as job:
        address = exporter(directory)
        job(SECONDS)  # to warm up
        for turn in ([False, True, True, False] * turns)[:turns]:
            before = site.server.usage()['cpu_seconds']
            with asking(address, PAGES[pages]) if turn and address else (
                    contextlib.nullcontext(())) as asked:
                done[turn] += job(SECONDS)
            cpu[turn] += site.server.usage()['cpu_seconds'] - before
            scrapes += len(asked)
        return {'quiet_cpu_seconds': cpu[False] / done[False],
                'asked_cpu_seconds': cpu[True] / done[True],
                'scrapes': scrapes / done[True],
                'peak_mb': memory.peaks()[memory.figure('server')] / (1 << 20)}


def exporter(directory):
    """Where the server shows its metrics, or None."""
    log = pathlib.Path(directory, served.LOG).read_text()
    said = re.search(r'a live page.* at http://([\d.]+):(\d+)', log)
    return said and said.groups()


@contextlib.contextmanager
def asking(address, pages):
    """Requests are sent; yields a list with an entry for each scrape."""
    over, asked = threading.Event(), []

    def ask():
        begin, is_over = time.monotonic(), False
        while not is_over:
            asked.append([load.fetch(address, page) for page in pages])
            is_over = over.wait(max(
                0.0, begin + EVERY * len(asked) - time.monotonic()))

    with ThreadPoolExecutor(1) as pool:
        asks = pool.submit(ask)
        try:
            yield asked
        finally:
            over.set()
    asks.result()


@contextlib.contextmanager
def commits(site):
    with connected(site, COMMITTERS) as clients:
        def job(seconds):
            before = len(crew.durations(clients))
            light.drive(clients, seconds)
            return len(crew.durations(clients)) - before
        yield job


@contextlib.contextmanager
def reads(site):
    oid, = population.plant(site, population.small(read=1))['read']
    with connected(site, 1) as (client,):
        read = functools.partial(client.channel.load, oid, maxtid)
        yield lambda seconds: len(crew.timed(
            itertools.repeat(read), seconds).durations)


@contextlib.contextmanager
def crowd(number, site):
    with connected(site, number) as clients:
        for client in clients:
            client.commit()
            client.socket.recv(1, socket.MSG_PEEK)  # it has its vote
        yield lambda seconds: time.sleep(seconds) or seconds


@contextlib.contextmanager
def connected(site, number):
    """Clients with a read channel each."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(number):
            client = stack.enter_context(
                contextlib.closing(light.Client(site.address)))
            about = client.call('get_info')['fsyncstorage']
            client.channel = stack.enter_context(contextlib.closing(
                ReadChannel(site.address, about['instance'], '1', None, None,
                            about['mark'])))
            clients.append(client)
        yield clients


def claim(words, pages, workload, figure, under, against=None):
    return Claim(words, workload, {'pages': pages}, ON.name, figure,
                 against and ON.name, against_figure=against, under=under)


CLAIMS = [
    *(claim(f'processor time of {work}, asked against not asked', 'metrics',
            work, 'asked_cpu_seconds', 1.01, 'quiet_cpu_seconds')
      for work in ('commits', 'reads')),
    *(claim(f'processor time to ask for {pages}, 1,000 clients', pages,
            'crowd', 'scrape_cpu_seconds', 0.02) for pages in PAGES),
    # Asked each second: a hundredth of a processor, which the noise of the
    # first two is too large to show.
    claim(f'processor time to ask for metrics, {COMMITTERS} clients',
          'metrics', 'few', 'scrape_cpu_seconds', 0.01),
    claim('memory of metrics, against what is allowed', 'all', 'crowd',
          'more_mb', 1, 'allowed_mb')]

CAMPAIGNS = [Campaign(
    'scrapes', 'what it costs that metrics are asked for', [ON], races,
    rounds=7, claims=lambda document: CLAIMS)]
