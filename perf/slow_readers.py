"""How long other requests take while many slow readers are served.

500 readers request files of 2 MB, each of 40 files in turn, and read so slowly
that none comes to an end.  At the same time, a small file is requested again
and again, each time on a new connection.  The blob cache has room for half of
the files.

The readers that get a first byte within half a minute are counted: the server
can serve this number at once.  The requests for the small file are timed; one
that is not answered within half a minute counts as half a minute.  When all
readers have ended, the sizes of the files in the blob cache are added up.  The
claims are about nginx; waitress and gunicorn without it show their own limits.
"""

import contextlib
import os
import selectors
import socket
import time

from ZODB.blob import BLOB_SUFFIX

from fsyncstorage.timing.results import estimates
from fsyncstorage.timing.running import loops
from fsyncstorage.timing.running.campaign import Race

from .campaign import Campaign
from .claims import Claim
from .web import applications
from .web import load
from .web import sites

#: In a full run, and in a quick run.
READERS, SECONDS = (500, 200), (10, 3)

SIZE, NUMBER = 2 << 20, 40
CACHE = NUMBER * SIZE // 2

#: Seconds to wait for a first byte, and for the small file.
GIVE_UP = 30

#: The bytes that a reader takes at a time, and the seconds between.
BIT, PAUSE = 512, 0.5

#: Between two requests for the small file.
STEP = 0.01

THROUGH_NGINX = 'x-accel:fsync-client'
NAMES = THROUGH_NGINX, 'waitress:fsync-client', 'gunicorn:fsync-client'


def races(quick):
    return [Race('slow-readers', {
        'readers': READERS[quick],
        'seconds': SECONDS[quick],
        'loop': loops.installed()[-1],  # as ZEO does
    }, measure, ('served', 'others_p50_seconds', 'others_p99_seconds',
                 'cache_bytes'))]


def measure(contestant, directory, *, readers, seconds, loop):
    with contestant.running(
            directory, size=SIZE, number=NUMBER, loop=loop,
            cache_size=CACHE) as address:
        load.fetch(address, applications.SMALL, len(b'small'))
        with Readers(address, readers) as crowd:
            end = time.perf_counter() + GIVE_UP
            while len(crowd.served) < readers and time.perf_counter() < end:
                crowd.read()
                time.sleep(PAUSE)
            served = len(crowd.served)
            times = list(_others(address, seconds, crowd))
        # One more, for which room has to be made.
        load.fetch(address, applications.COLD, SIZE)
        return {
            'readers': readers,
            'served': served,
            'others_p50_seconds': estimates.percentile(times, 50),
            'others_p99_seconds': estimates.percentile(times, 99),
            'cache_bytes': _bytes_in(
                os.path.join(directory, sites.CACHE)),
            'cache_limit': CACHE,
        }


class Readers:
    """They are connected until the `with` ends."""

    def __init__(self, address, number):
        self._selector = selectors.DefaultSelector()
        #: Readers that got a first byte.
        self.served = set()
        self._readers = [_reader(address) for _ in range(number)]

    def __enter__(self):
        for reader in self._readers:
            self._selector.register(reader, selectors.EVENT_READ)
        return self

    def __exit__(self, *error):
        self._selector.close()
        for reader in self._readers:
            reader.close()

    def read(self):
        """Each reader takes some bytes of those that came for it."""
        for key, _ in self._selector.select(0):
            with contextlib.suppress(ConnectionError):
                if key.fileobj.recv(BIT):
                    self.served.add(key.fd)
                    continue
            self._selector.unregister(key.fileobj)


def _reader(address):
    reader = socket.socket()
    # Or the system would read for it.
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BIT)
    reader.connect(address)
    reader.sendall(b''.join([
        f'GET {applications.COLD} HTTP/1.0\r\n'.encode(),
        b'Host: localhost\r\n\r\n']))
    return reader


def _others(address, seconds, crowd):
    """The times of requests for the small file, while the crowd reads on."""
    end = time.perf_counter() + seconds
    read = 0.0
    while (began := time.perf_counter()) < end:
        with contextlib.suppress(TimeoutError):
            load.fetch(
                address, applications.SMALL, len(b'small'), timeout=GIVE_UP)
        yield time.perf_counter() - began
        if began - read > PAUSE:
            read = began
            crowd.read()
        time.sleep(STEP)


def _bytes_in(directory):
    return sum(
        os.path.getsize(os.path.join(path, name))
        for path, _, names in os.walk(directory)
        for name in names if name.endswith(BLOB_SUFFIX))


def claim(words, figure, **options):
    return Claim(
        words, 'slow-readers', {}, THROUGH_NGINX, figure, **options)


CLAIMS = [
    claim('others wait for a small file, p99', 'others_p99_seconds',
          under=0.05),
    claim('readers with a first byte, of all', 'served',
          against=THROUGH_NGINX, against_figure='readers', at_least=1),
    claim('limit of the blob cache, against what is in it', 'cache_limit',
          against=THROUGH_NGINX, against_figure='cache_bytes', at_least=1),
]


CAMPAIGNS = [Campaign(
    'slow_readers', 'what others wait while many read slowly',
    [sites.CONTESTANTS[name] for name in NAMES], races, rounds=3,
    claims=lambda document: CLAIMS)]
