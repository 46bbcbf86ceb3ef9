"""What the tests of a scrub beside a storage have in common."""

import dataclasses
import json
import logging
import os
import threading
from unittest import mock

from fsyncstorage.processes import starting
from fsyncstorage.scrub import scrubbing

from ..processes.started import StartedTestCase
from ..support import PATIENCE
from ..support import commit
from ..support import until

READY = json.dumps({'ready': starting.VERSION})
ENDED = 'a scrub has read'
DAMAGE = 'has found damage'
INTERRUPTED = 'was interrupted'


def says(*reports):
    """A script that is ready, reports this when it has its job, and hangs."""
    lines = [READY, *map(json.dumps, reports)]
    texts = ' '.join(f"'{line}'" for line in lines[1:])
    return (rf"read modules; printf '%s\n' '{lines[0]}'; read job;"
            rf" for report in {texts}; do printf '%s\n' " '"$report"; done;'
            ' read nothing')


def read(done, damage=None):
    return {'read': dataclasses.asdict(done), 'damage': damage}


class Heard(logging.Handler):
    """What is logged; a test waits for it."""

    def __init__(self):
        super().__init__()
        self._changed = threading.Condition()
        self.records = []

    def emit(self, record):
        with self._changed:
            self.records.append(record)
            self._changed.notify_all()

    def those(self, words):
        return [record for record in self.records
                if words in record.getMessage()]

    def wait(self, words, count=1):
        """The message with these words that came at last."""
        with self._changed:
            if not self._changed.wait_for(
                    lambda: len(self.those(words)) >= count, PATIENCE):
                raise AssertionError([
                    record.getMessage() for record in self.records])
            return self.those(words)[-1].getMessage()


class ScrubTestCase(StartedTestCase):

    def setUp(self):
        super().setUp()
        self.heard = Heard()
        logger = logging.getLogger('fsyncstorage.scrub')
        self.addCleanup(logger.setLevel, logger.level)
        self.addCleanup(logger.removeHandler, self.heard)
        self.addCleanup(setattr, logger, 'propagate', logger.propagate)
        logger.addHandler(self.heard)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        #: The processes that were started.
        self.started = started = []

        class ChildProcess(starting.ChildProcess):

            def __init__(self, *args):
                super().__init__(*args)
                started.append(self.pid)

        self.patch(scrubbing, ChildProcess=ChildProcess, LOOK_AGAIN_AFTER=.01)

    def patch(self, module, **values):
        patch = mock.patch.multiple(module, **values)
        patch.start()
        self.addCleanup(patch.stop)

    def scrubbed(self, rate='1GB', **options):
        return self.open(scrub_rate=rate, **options)

    def fill(self, count=10, size=100, **options):
        """Where the transactions begin, and the file ends."""
        storage = self.open(**options)
        ends = [storage.getSize()]
        for number in range(count):
            commit(storage, {number: b'N.' + b'x' * size})
            ends.append(storage.getSize())
        storage.close()
        return ends

    def flip(self, at):
        with open(self.path(), 'r+b') as file:
            byte, = os.pread(file.fileno(), 1, at)
            os.pwrite(file.fileno(), bytes([byte ^ 1]), at)
            os.fsync(file.fileno())

    def wait_until_read(self, storage, position):
        until(lambda: storage.stats()['scrub']['position'] == position,
              'it is noted')
