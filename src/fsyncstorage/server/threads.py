"""Threads that do each job that they were given, and none that was refused.

They are started when they are needed, and stay.  Where the system starts no
more of them, those that run do all jobs; later jobs try again, until there are
as many as there should be.  A job is refused, loudly, where no thread runs at
all, and after the end; it is not done later either.

(A ThreadPoolExecutor that cannot start a thread raises an error, and keeps the
job all the same; and it believes from then on that one more is idle.)
"""

import queue
import threading

from . import quiet

logger = quiet.get_logger(__name__)


class Threads:

    def __init__(self, size, name):
        self._size = size
        self._name = name
        self._jobs = queue.SimpleQueue()
        self._lock = threading.Lock()  # for all that follows
        self._threads = []
        #: Jobs that were taken, and are not done.
        self._undone = 0
        self._closed = False

    @property
    def waiting(self):
        """Jobs that no thread has begun."""
        return self._jobs.qsize()

    def submit(self, job, *arguments):
        """RuntimeError: it is refused."""
        with self._lock:
            if self._closed:
                raise RuntimeError(f'{self._name} is closed')
            if len(self._threads) < min(self._size, self._undone + 1):
                self._start()
            # Counted first: if that is interrupted, there is a thread more.
            self._undone += 1
            self._jobs.put((job, arguments))

    def _start(self):
        """Start one more; an error, if there is none then."""
        name = f'{self._name} {len(self._threads) + 1}'
        try:
            thread = threading.Thread(
                target=self._run, daemon=True, name=name)
            thread.start()
        except (RuntimeError, MemoryError) as error:
            # Of the system: there are too many.
            logger.error('%s: a thread could not be started: %s', name, error)
            if not self._threads:
                raise RuntimeError(
                    f'no thread could be started: {error}') from error
        else:
            self._threads.append(thread)

    def _run(self):
        while (given := self._jobs.get()) is not None:
            job, arguments = given
            try:
                job(*arguments)
            except BaseException:  # SystemExit, too: the others must be done
                logger.exception('an error in the server')
            # Keep nothing of this job alive while waiting for the next one.
            del given, job, arguments
            with self._lock:
                self._undone -= 1
        self._jobs.put(None)  # for the next one

    def shutdown(self, within=None):
        """Take no more jobs; return when those that were taken are done.

        Wait no longer than so many seconds for each thread.
        """
        with self._lock:
            self._closed = True
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(within)
