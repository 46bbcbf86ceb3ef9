"""The processes that read for clients of ours, seen from the server.

A client opens readers beside its stream: connections on which it only reads.
A newcomer whose first bytes say that it is one is handed to a process
(readerprocess), together with a number.  The processes are started when the
first readers come, up to `most`, and serve all storages that hand their files
over.  If one ends, its readers end with it, and their clients open others.

A reader counts from when it is handed over until its process reports the end:
there are at most `MOST`, for all processes together, and at most half as many
of one address.

All of it belongs to the event loop, but for the thread of each process, which
waits for its reports.
"""

import collections
import os
import socket
import threading
import time

from ..processes.starting import ChildProcess
from ..processes.starting import NotStarted
from ..processes.starting import Silent
from ..processes.starting import is_possible
from . import quiet
from .clients import Tally

logger = quiet.get_logger(__name__)

MOST = 1000
#: Processes, if nobody says how many: one for each processor, up to this many.
MOST_BY_DEFAULT = 4
#: Seconds without another start, after a process has ended by itself.
RETREAT = 10
#: Seconds without a sign of life, after which a process is ended.
SILENT_FOR = 30
#: Seconds that a close waits for the loop, and for each process.
END_WITHIN = 10

_MODULE = f'{__package__}.readerprocess'


def number_of_processes(wanted):
    """The largest number that a storage wants; None: one for each processor,
    but not many."""
    if not wanted:  # as everywhere but on Linux, which alone has this call
        return 0
    by_default = min(len(os.sched_getaffinity(0)), MOST_BY_DEFAULT)
    return max(by_default if each is None else each for each in wanted)


class ReaderProcesses:

    def __init__(self, services, instance, greeting, tallies, mailbox, most,
                 tls=None):
        """`services`: by name, those whose storages hand over their files.
        `tls`: the configuration file that has it."""
        self._services = services
        self._tallies = tallies
        self._post = mailbox.post
        self._most = most if is_possible() else 0
        self._instance = instance
        self._greeting = greeting
        self._tls = tls
        self._processes = []
        #: Those that were told to end.
        self._ending = []
        self._numbers = 0
        #: Number -> the reader that was handed over.
        self._readers = {}
        #: Readers of each address.
        self._of = collections.Counter()
        self._not_before = 0.0
        self._closed = False
        self._has_closed = threading.Event()

    def read(self, name):
        """Do they read this storage?"""
        return (self._most > 0 and name in self._services
                and self._services[name].handout.about is not None)

    def take(self, connection, host):
        """Hand this socket to a process.  False: that is not possible now."""
        if (not self._services or not self._most or self._closed
                or len(self._readers) >= MOST or self._of[host] >= MOST // 2):
            return False
        self._start_if_needed()
        self._numbers += 1
        # One that has died a moment ago may be among them.
        for process in sorted(self._processes, key=lambda each: each.readers):
            if process.hand_over(self._numbers, connection):
                self._readers[self._numbers] = _Reader(process, host)
                self._of[host] += 1
                return True
        return False

    def _start_if_needed(self):
        """Start a process if each has readers, and there may be one more."""
        if (all(each.readers for each in self._processes)
                and len(self._processes) < self._most
                and time.monotonic() >= self._not_before):
            try:
                self._processes.append(_Process(
                    self._job(), self._post, self._reported, self._ended))
            except (OSError, RuntimeError) as error:
                self._retreat(error)

    def _job(self):
        """What a process has to know (readerprocess)."""
        storages = []
        for name, service in self._services.items():
            about = service.handout.about
            if about is not None:
                storages.append({
                    'name': name, 'socket': about['socket'],
                    'instance': about['instance'].hex(),
                    'blobs': about.get('blobs')})
        return {'instance': self._instance.hex(), 'storages': storages,
                'greeting': self._greeting.hex(), 'configuration': self._tls}

    def _retreat(self, why):
        self._not_before = time.monotonic() + RETREAT
        logger.warning(
            'for %s s no process that reads is started; clients use those that'
            ' are left, or their streams: %s', RETREAT, why)

    # What the processes report

    def _reported(self, process, report):
        for done in report['done']:
            reader = self._readers.get(done['number'])
            if reader is not None:
                self._count(reader, done)
        for number in report['ended']:
            reader = self._readers.pop(number, None)
            if reader is not None:
                self._forget(reader)

    def _count(self, reader, done):
        service = self._services[done['storage']]
        if reader.service is None:
            reader.service = service
            # (A new Tally is for a client that has gone.)
            reader.tally = self._tallies.get(
                bytes.fromhex(done['mark'])) or Tally()
            service.figures.channels += 1
        service.stats.loads += done['loads']
        service.figures.loads_by_readers += done['loads']
        service.figures.requests += done['requests']
        service.figures.received += done['received']
        service.figures.sent += done['sent']
        reader.tally.loads += done['loads']
        reader.tally.messages += done['requests']
        reader.tally.received += done['received']
        reader.tally.sent += done['sent']

    def _forget(self, reader):
        reader.process.readers -= 1
        self._of[reader.host] -= 1
        if not self._of[reader.host]:
            del self._of[reader.host]
        if reader.service is not None:
            reader.service.figures.channels -= 1

    def _ended(self, process, why):
        if process in self._processes:
            self._processes.remove(process)
            process.end()
            self._forget_all_of(process)
            self._retreat(why)

    def _forget_all_of(self, process):
        for number, reader in list(self._readers.items()):
            if reader.process is process:
                self._forget(self._readers.pop(number))

    # The end

    def end_all(self):
        """End all readers, and the processes with them.  In the loop."""
        while self._processes:
            process = self._processes.pop()
            self._ending.append(process)
            process.end()
            self._forget_all_of(process)

    def close(self):
        """End all, and take no more.  In the loop, or when it has ended."""
        self._closed = True
        self.end_all()
        self._has_closed.set()

    def join(self):
        """Wait for the end of the processes.  From any thread, when the loop
        has closed this or is about to."""
        self._has_closed.wait(END_WITHIN)
        for process in self._ending:
            process.join()


class _Reader:

    #: Known when the process has taken its hello.
    service = tally = None

    def __init__(self, process, host):
        self.process = process
        self.host = host


class _Process:

    def __init__(self, job, post, reported, ended):
        """`reported(process, report)` and `ended(process, why)` are posted."""
        #: How many it has.
        self.readers = 0
        self._job = job
        self._post = post
        self._reported, self._has_ended = reported, ended
        self._lock = threading.Lock()  # for the next two
        self._child, self._ends = None, False
        self._door, self._its_door = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.setblocking(False)
        self._job['door'] = self._its_door.fileno()
        self._thread = threading.Thread(
            target=self._run, daemon=True, name='a process that reads')
        try:
            self._thread.start()
        except RuntimeError:
            self._door.close()
            self._its_door.close()
            raise

    def hand_over(self, number, connection):
        """False: it cannot take any more now."""
        try:
            # (The process takes it when it is ready.)
            socket.send_fds(self._door, [number.to_bytes(8, 'big')],
                            [connection.fileno()])
        except OSError as error:
            logger.warning('a process that reads takes no reader: %s', error)
            return False
        self.readers += 1
        return True

    def end(self):
        with self._lock:
            self._ends = True
            if self._child is not None:
                self._child.end()
        self._door.close()

    def join(self):
        self._thread.join(END_WITHIN)

    # The thread.  (The system ends the process when this thread ends.)

    def _run(self):
        why = 'the process has ended'
        try:
            with self._its_door:
                child = ChildProcess(_MODULE, [self._its_door.fileno()])
            try:
                self._follow(child)
            finally:
                child.close()
        except (NotStarted, Silent) as error:
            why = str(error)
        except Exception as error:
            logger.exception('a process that reads has failed')
            why = repr(error)
        finally:
            self._post(self._has_ended, self, why)

    def _follow(self, child):
        with self._lock:
            if self._ends:
                return
            self._child = child
        child.begin(self._job)
        for report in child.reports(SILENT_FOR):
            self._post(self._reported, self, report)
