"""Threads that do every job that was accepted, and no job that was refused.

They are started when they are needed, and stay.  If the system cannot start
another thread, those that run do all jobs; each later job tries again to start
one, until there are `size` threads.  A job is refused, with an error, if no
thread runs at all, and after the shutdown.  A refused job is never done later.

(A ThreadPoolExecutor that cannot start a thread raises an error, but keeps the
job; and from then on it counts one more thread as idle.)
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
        self._lock = threading.Lock()  # for the attributes below
        self._threads = []
        #: Jobs that were accepted and are not done.
        self._undone = 0
        self._closed = False

    @property
    def waiting(self):
        """Jobs that no thread has begun."""
        return self._jobs.qsize()

    def submit(self, job, *arguments):
        """Raise RuntimeError if the job is refused."""
        with self._lock:
            if self._closed:
                raise RuntimeError(f'{self._name} is closed')
            if len(self._threads) < min(self._size, self._undone + 1):
                self._start()
            # Counted first: an interrupt here costs at most an extra thread.
            self._undone += 1
            self._jobs.put((job, arguments))

    def _start(self):
        """Try to start one more; raise if there is still no thread at all."""
        name = f'{self._name} {len(self._threads) + 1}'
        try:
            thread = threading.Thread(
                target=self._run, daemon=True, name=name)
            thread.start()
        except (RuntimeError, MemoryError) as error:
            # The system allows no more.
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
            except BaseException:  # SystemExit, too: other jobs must be done
                logger.exception('an error in the server')
            # Keep nothing of this job alive while waiting for the next one.
            del given, job, arguments
            with self._lock:
                self._undone -= 1
        self._jobs.put(None)  # for the next thread

    def shutdown(self, within=None):
        """Accept no more jobs; return when those that were accepted are done.

        Wait at most `within` seconds for each thread; None: as long as it
        takes.
        """
        with self._lock:
            self._closed = True
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(within)
