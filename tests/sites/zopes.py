"""Zopes, what is done with them over HTTP, and what must come of it.

Their content type is that of examples/zope: a file that is kept in a blob.
"""

import base64
import contextlib
import http.client
import itertools
import os
import pathlib
import threading
import time

from ..support import Thread
from ..support import until

EXAMPLE = pathlib.Path(__file__).parents[2] / 'examples' / 'zope'
USER = 'admin:admin'

#: Longer than a Zope waits for its ZEO server: so it always answers, and
#: nothing is still going on behind what has failed.
LONG = 120

_BOUNDARY = 'ab9d6bd0c4f14b0f'


class Failed(Exception):
    """No answer of success.  What was asked for may have been done."""


class Zope:
    """One instance, as its users see it."""

    def __init__(self, port):
        self._port = port
        self._authorization = 'Basic ' + base64.b64encode(
            USER.encode()).decode()

    def is_up(self):
        try:
            self._ask('GET', '/')
        except Failed:
            return False
        return True

    def add(self, name, content):
        self._post('/manage_addProduct/BlobFile/addBlobFile',
                   id=name.encode(), file=content)

    def replace(self, name, content):
        self._post(f'/{name}/replace', file=content)

    def content(self, name):
        return self._ask('GET', f'/{name}')

    def _post(self, path, **fields):
        self._ask('POST', path, _form(fields), {
            'Content-Type': f'multipart/form-data; boundary={_BOUNDARY}'})

    def _ask(self, method, path, body=None, headers={}):
        connection = http.client.HTTPConnection(
            '127.0.0.1', self._port, timeout=LONG)
        try:
            with contextlib.closing(connection):
                connection.request(method, path, body, {
                    'Authorization': self._authorization, **headers})
                response = connection.getresponse()
                content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f'{method} {path}: {error!r}') from error
        if response.status >= 400:
            raise Failed(f'{method} {path}: {response.status} {content!r}')
        return content


def _form(fields):
    parts = []
    for name, content in fields.items():
        filename = '; filename="a"' if name == 'file' else ''
        parts += [
            f'--{_BOUNDARY}\r\nContent-Disposition: form-data;'
            f' name="{name}"{filename}\r\n\r\n'.encode(), content, b'\r\n']
    return b''.join(parts) + f'--{_BOUNDARY}--\r\n'.encode()


def check_upload(zopes, size):
    """A file that is uploaded to one Zope can be downloaded from each."""
    content = os.urandom(size)
    zopes[0].add('upload', content)
    for zope in zopes:
        assert zope.content('upload') == content, 'it is another file'


class Writer:
    """Changes an object at one Zope, and reads it at another."""

    def __init__(self, name, here, there):
        self.name, self.here, self.there = name, here, there
        self.tried = self.answered = 0
        #: When changes were answered with success.
        self.times = []
        here.add(name, self._content(0))

    def run(self, stop):
        while not stop.is_set():
            self.tried += 1
            try:
                self.here.replace(self.name, self._content(self.tried))
                self.answered = self.tried
                self.times.append(time.monotonic())
                self.check(self.there)
            except Failed:
                stop.wait(.1)

    def check(self, zope):
        """It has the last change that was answered, or one after that."""
        content = zope.content(self.name)
        count = int(content.split()[0])
        assert content == self._content(count), content
        assert self.answered <= count <= self.tried, (
            f'{self.name} has change {count}, answered was {self.answered}')

    def _content(self, count):
        return b'%d ' % count * 1000


class Load:
    """Writers at each of some Zopes; each reads at the next one."""

    def __init__(self, zopes, writers=2):
        self.writers = {
            zope: [Writer(f'file-{place}-{number}', zope,
                          zopes[(place + 1) % len(zopes)])
                   for number in range(writers)]
            for place, zope in enumerate(zopes)}

    @contextlib.contextmanager
    def running(self):
        stop = threading.Event()
        self._threads = [Thread(writer.run, stop) for writer in self._all()]
        try:
            yield
        finally:
            stop.set()
            for thread in self._threads:
                thread.join(LONG)
        for thread in self._threads:
            thread.result()

    def wait_for_changes(self, number):
        """So many more are answered, to each writer; or one has ended, for
        a reason that `running` raises."""
        enough = {writer: len(writer.times) + number for writer in self._all()}
        until(lambda: all(len(writer.times) >= enough[writer]
                          for writer in enough)
              or not all(thread.is_alive() for thread in self._threads),
              'changes')

    def check(self):
        """No change that was answered is missing, wherever one looks."""
        for zope in self.writers:
            for writer in self._all():
                writer.check(zope)

    def gaps(self, begin, end):
        """Of each Zope: the longest time without a success, of those that
        this one touches."""
        gaps = []
        for writers in self.writers.values():
            times = sorted(itertools.chain.from_iterable(
                writer.times for writer in writers))
            gaps.append(max(
                after - before for before, after in itertools.pairwise(times)
                if before < end and after > begin))
        return gaps

    def __str__(self):
        answered = sum(len(writer.times) for writer in self._all())
        tried = sum(writer.tried for writer in self._all())
        return (f'{answered} changes were answered, {tried - answered} failed'
                ' or were cut off; none that was answered is missing')

    def _all(self):
        return [writer for writers in self.writers.values()
                for writer in writers]
