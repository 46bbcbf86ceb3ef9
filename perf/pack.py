"""Commits and reads over ZEO while the file is packed.

The file has 1,000,000 objects, of which a tenth have an older revision; it is
built once, and copied for each sample.  Eight client processes change a page,
read four that they have not seen, and pause, again and again.  At the same
time, the file is packed to the present time; or, for comparison, it is not.
Without clients, the time of a pack is that of an idle machine.

The disk is as it is, or a slow one (slowdisk).  Clients time their commits and
reads; those that overlap with the pack count.  A client that waits makes fewer
requests: so the longest ones say more about long stalls than the p99.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import random
import shutil
import time

from ZODB.FileStorage import FileStorage
from ZODB.utils import p64

from fsyncstorage.timing.results.wording import duration
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running import supervisor
from fsyncstorage.timing.running import zeosites
from fsyncstorage.timing.running.sampling import Race

from . import contents
from . import slowdisk
from .campaign import Campaign
from .claims import Claim

STOCK, OURS = 'zeo', 'fsync-client'
#: In a full run, and in a quick run.
OBJECTS, SECONDS = (1_000_000, 10_000), (40, 1)
CLIENTS, READS = 8, 4
#: Seconds of a client before its next commit; and of all before the pack.
PAUSE, SETTLE = 0.03, 1
AS_IT_IS = {'speed': None, 'latency': 0}
SLOW = {'speed': 50 << 20, 'latency': 0.005}
# Bytes of a pack's process: Python and its buffers, at most; for each object,
# and for each reference, of which two an object are more than enough.
ALLOWED, AN_OBJECT, A_REFERENCE = 64 << 20, 25, 4

_MB = 1 << 20
_OF_CLIENTS = ('p50_seconds', 'p99_seconds', 'max_seconds',
               'reads_p99_seconds', 'reads_max_seconds', 'server_peak_mb')
_OF_PACK = 'pack_seconds', 'child_peak_mb'


def races(quick):
    for disk in AS_IT_IS, SLOW:
        for clients, packs in (CLIENTS, False), (CLIENTS, True), (0, True):
            yield Race(
                'pack', {
                    'objects': OBJECTS[quick], 'clients': clients,
                    'packs': packs, 'seconds': SECONDS[quick], **disk,
                    'loop': zeosites.loops()[-1]},
                measure, (*_OF_CLIENTS * bool(clients), *_OF_PACK * packs))


def measure(contestant, directory, *, objects, clients, packs, seconds,
            speed, latency, loop):
    built(directory, objects)
    over = supervisor.FORK.Event()
    with contestant.running(
            directory, loop=loop, socket=False, sync_latency=0.0, speed=speed,
            latency=latency) as site:
        site.server.usage()     # from now on, the peak of its memory counts
        results, [usage] = crew.processes(site, [
            (packer if packs else bystander)(site, seconds, over),
            *(client(site, number, objects, over)
              for number in range(clients))])
        peak = site.server.usage()['server_peak']
    (began, ended), *stretches = results
    figures = {'server_peak_mb': peak / _MB,
               'server_cpu': usage['cpu_seconds'] / (ended - began)}
    if stretches:
        figures.update(of_clients(stretches, began, ended))
    if packs:
        figures.update(of_pack(directory, objects), pack_seconds=ended - began)
    return figures


def built(directory, objects):
    """A copy of the file; it is built beside the directory, once."""
    template = f'{os.path.dirname(directory)}/built-{objects}'
    if not os.path.exists(template):
        os.mkdir(template)
        path = os.path.join(template, zeosites.DATA_FILE)
        contents.build(path, objects)
        FileStorage(path).close()   # writes the index, which both read
    for name in zeosites.DATA_FILE, f'{zeosites.DATA_FILE}.index':
        copy = shutil.copyfile(
            os.path.join(template, name), os.path.join(directory, name))
        with open(copy, 'rb') as file:
            os.fsync(file.fileno())     # or the system writes it meanwhile


@crew.job
def packer(site, seconds, over, start):
    """When the pack began, and when it ended."""
    with contextlib.closing(site.open()) as storage:
        start()
        time.sleep(SETTLE)
        began = time.perf_counter()
        storage.pack(time.time(), None)
        ended = time.perf_counter()
        over.set()
        return began, ended


@crew.job
def bystander(site, seconds, over, start):
    """The same times, without a pack."""
    start()
    time.sleep(SETTLE)
    began = time.perf_counter()
    time.sleep(seconds)
    over.set()
    return began, time.perf_counter()


@crew.job
def client(site, number, objects, over, start):
    """When each request began, and how long it took: commits, and reads."""
    mine = random.Random(number)
    own = [each for each in range(2, objects) if contents.is_page(each)]
    own = own[number::CLIENTS]
    mine.shuffle(own)
    own = itertools.cycle(own)
    commits, reads = [], []
    with crew.connected(site) as (manager, connection):
        def timed(requests, request, *arguments):
            began = time.perf_counter()
            found = request(*arguments)
            requests.append((began, time.perf_counter() - began))
            return found

        def read():
            page = connection.get(p64(next(own)))
            page._p_activate()
            return page

        start()
        while not over.is_set():
            manager.begin()
            pages = [timed(reads, read) for _ in range(READS)]
            pages[0].text = f'{len(commits):250}'
            timed(commits, manager.commit)
            time.sleep(PAUSE)
    return commits, reads


def of_clients(stretches, began, ended):
    """Figures of what overlaps with this time."""
    commits, reads = (
        [took for stretch in stretches for begin, took in stretch[which]
         if begin < ended and begin + took > began]
        for which in (0, 1))
    return {
        'commits': len(commits), 'reads': len(reads), **crew.times(commits),
        **{f'reads_{name}': value
           for name, value in crew.times(reads).items()}}


def of_pack(directory, objects):
    """Figures of the file, and of the process of its own, if there was one."""
    size = os.path.getsize(os.path.join(directory, zeosites.DATA_FILE))
    figures = {'packed_bytes': size}
    with contextlib.suppress(FileNotFoundError), open(
            os.path.join(directory, slowdisk.PEAK_OF_CHILD)) as file:
        figures['child_peak_mb'] = int(file.read()) / _MB
    figures['child_allowed_mb'] = (
        ALLOWED + objects * (AN_OBJECT + 2 * A_REFERENCE)) / _MB
    return figures


def claims(document):
    of = functools.partial(_claim, 'the disk as it is', AS_IT_IS)
    yield of('time of a pack on an idle machine, against stock',
             'pack_seconds', STOCK, clients=0, under=1)
    yield from _of_a_disk(of, AS_IT_IS)
    yield from _of_a_disk(
        functools.partial(_claim, 'a slow disk', SLOW), SLOW)


def _of_a_disk(of, disk):
    beside = {'clients': CLIENTS, 'packs': False, **disk}
    yield of('p99 of a commit, against that without a pack', 'p99_seconds',
             against_settings=beside, under=1.5)
    yield of('the longest commit', 'max_seconds', None, under=0.05)
    yield of('the longest read', 'reads_max_seconds', None, under=0.02)
    yield of('memory of the server, against that without a pack',
             'server_peak_mb', against_settings=beside, under=1.1)
    yield of('memory of the process, against what is allowed',
             'child_peak_mb', against_figure='child_allowed_mb', under=1)


def _claim(words_of_disk, disk, words, figure, against=OURS, *,
           clients=CLIENTS, **options):
    return Claim(f'{words}, {words_of_disk}', 'pack',
                 {'clients': clients, 'packs': True, **disk}, OURS, figure,
                 against, **options)


def added(contestants):
    yield (
        f'The slow disk writes {SLOW["speed"] >> 20} MB a second before a'
        f' sync, which takes {duration(SLOW["latency"])} more; one sync at a'
        ' time. What is not synced, and reads, take no longer.')


CAMPAIGNS = [Campaign(
    'pack', 'commits and reads over ZEO while the file is packed',
    [dataclasses.replace(zeosites.CONTESTANTS[name], serve=slowdisk.serve)
     for name in (STOCK, OURS)],
    lambda quick: list(races(quick)), rounds=5, claims=claims, added=added)]
