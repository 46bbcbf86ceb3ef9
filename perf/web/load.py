"""Many requests for one path, several at a time: by ApacheBench (`ab`) where
it is installed, else by threads of this process.

To request a small file, Python needs more processor time than a server needs
to send it: then the figures show the limit of the loader.  So a table says
what sent the requests.
"""

import functools
import http.client
import re
import shutil
import subprocess
import time

from fsyncstorage.timing.running import crew

#: Requests, as in 2004 and 2010.
AT_ONCE = 10

_PIECE = 1 << 18

#: Seconds to wait for the next byte.
_TIMEOUT = 120


class RequestFailed(Exception):
    """The message is one line."""


def name():
    return 'ab' if _has_ab() else 'threads in Python'


def load(address, path, size, requests, at_once):
    """Requests a second; each answer must have `size` bytes."""
    measure = _by_ab if _has_ab() else _by_threads
    return measure(address, path, size, requests, min(at_once, requests))


def fetch(address, path, size=None, timeout=_TIMEOUT):
    """Make one request; return the seconds until its first byte.

    Without a size, any answer will do.
    """
    connection = http.client.HTTPConnection(*address, timeout=timeout)
    try:
        began = time.perf_counter()
        connection.request('GET', path, headers={'Connection': 'close'})
        response = connection.getresponse()
        found = len(response.read(1))
        first = time.perf_counter() - began
        buffer = bytearray(_PIECE)
        while length := response.readinto(buffer):
            found += length
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK or size not in (None, found):
        raise RequestFailed(
            f'{path} was answered with {response.status} and {found} bytes,'
            f' not with 200 and {size}')
    return first


def _has_ab():
    return shutil.which('ab') is not None


def _by_threads(address, path, size, requests, at_once):

    fetch_one = functools.partial(fetch, address, path, size)

    def work(number, start):
        start()
        return crew.timed([fetch_one] * len(range(number, requests, at_once)))

    return requests / crew.seconds(crew.threads([
        functools.partial(work, number) for number in range(at_once)
    ]).results)


def _by_ab(address, path, size, requests, at_once):
    host, port = address
    done = subprocess.run(
        ['ab', '-q', '-s', str(_TIMEOUT), '-n', str(requests),
         '-c', str(at_once), f'http://{host}:{port}{path}'],
        stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RequestFailed(f'{path}: {" ".join(done.stderr.split())}')
    return read_report(done.stdout, path, size, requests)


def read_report(report, path, size, requests):
    """Requests a second, from what `ab` printed, if all went well."""
    told = {
        name: float(value) for name, value in re.findall(
            r'^([A-Z][\w -]+): +(\d+(?:\.\d+)?)\s', report, re.MULTILINE)}
    wrong = told['Failed requests'] + told.get('Non-2xx responses', 0)
    if wrong or told['Complete requests'] != requests:
        raise RequestFailed(
            f'{path}: {wrong:.0f} of {told["Complete requests"]:.0f} requests'
            f' failed, and {requests} were asked for')
    if told['Document Length'] != size:
        raise RequestFailed(
            f'{path} brought {told["Document Length"]:.0f} bytes, not {size}')
    return told['Requests per second']
