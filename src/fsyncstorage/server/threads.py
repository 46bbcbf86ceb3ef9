"""The one way from the loop into a thread, and back.

A job is a step; its outcome is posted to the loop's mailbox.  Threads are
started when they are needed, and stay.  If the system cannot start another
thread, those that run do all jobs; each later job tries again to start one,
until there are `size` threads.  A job is refused if no thread runs at all, and
after the shutdown.  A refused job is never done later.

(A ThreadPoolExecutor that cannot start a thread raises an error, but keeps the
job; and from then on it counts one more thread as idle.)
"""

import collections
import contextlib
import queue
import threading

from ZODB.POSException import StorageError

from . import quiet

logger = quiet.get_logger(__name__)


class Mailbox:
    """How other threads reach the event loop.

    `post` may be called from any thread, but not from a signal handler.
    Functions that are posted run in the loop, in order; all that wait at the
    same time run in one callback.  Those that are posted meanwhile run in a
    later one: else the loop would see nothing else as long as threads post
    faster than it delivers, not even that the peers are gone for which they
    work.
    """

    def __init__(self, loop):
        self._loop = loop
        self._lock = threading.Lock()  # for the next two
        self._letters = collections.deque()
        self._scheduled = False
        self._thread = None  # of the loop

    def post(self, function, *arguments):
        with self._lock:
            self._letters.append((function, arguments))
            if self._scheduled:
                return
            self._scheduled = True
        try:
            if threading.get_ident() == self._thread:
                self._loop.call_soon(self.deliver)
            else:
                self._loop.call_soon_threadsafe(self.deliver)
        except RuntimeError:  # the loop is closed, and with it the server
            logger.debug('posted to a closed loop')
        except BaseException:  # the next post tries again
            self._scheduled = False
            raise

    def deliver(self):
        """Called by the loop; also when the server closes, for the rest."""
        self._thread = threading.get_ident()
        try:
            for _ in range(len(self._letters)):
                function, arguments = self._letters.popleft()
                attempt(function, *arguments)
        finally:  # whatever was raised: the loop may go on
            self._deliver_later()

    def _deliver_later(self):
        with self._lock:
            self._scheduled = bool(self._letters)
            if self._scheduled:
                with contextlib.suppress(RuntimeError):  # it is closed
                    self._loop.call_soon(self.deliver)


def attempt(function, *arguments):
    """Call it; if it fails, which should never happen, log that and go on."""
    try:
        function(*arguments)
    except Exception:  # the other callbacks must run
        logger.exception('an error in the server')


class Threads:

    def __init__(self, size, name, post):
        self._size = size
        self._name = name
        self._post = post
        self._jobs = queue.SimpleQueue()
        self._lock = threading.Lock()  # for the attributes below
        self._threads = []
        #: Jobs that were accepted and are not done.
        self._undone = 0
        self.closed = False

    @property
    def waiting(self):
        """Jobs that no thread has begun."""
        return self._jobs.qsize()

    @property
    def busy(self):
        """Threads that carry out a job."""
        return max(0, self._undone - self.waiting)

    def do(self, then, step, *arguments):
        """Carry out a step in a thread; `then(result, error)` follows in the
        loop.

        Return False if the job is refused.  If there is no thread, the error
        is its outcome; after the shutdown, it has none.
        """
        with self._lock:
            if self.closed:
                return False
            if len(self._threads) < min(self._size, self._undone + 1):
                try:
                    self._start()
                except RuntimeError as error:
                    self._post(then, None, error)
                    return False
            # Counted first: an interrupt here costs at most an extra thread.
            self._undone += 1
            self._jobs.put((then, step, arguments))
            return True

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
        while (job := self._jobs.get()) is not None:
            try:
                self.carry_out(*job)
            except BaseException:  # the outcome could not be posted
                logger.exception('an error in the server')
            # Keep nothing of this job alive while waiting for the next one.
            del job
            with self._lock:
                self._undone -= 1
        self._jobs.put(None)  # for the next thread

    def carry_out(self, then, step, arguments):
        result = error = None
        try:
            result = step(*arguments)
        except Exception as raised:
            error = raised
        except BaseException as raised:  # code of users exits
            error = StorageError(f'it was ended by {raised!r:.200}')
        try:
            self._post(then, result, error)
        finally:
            # Its traceback has this frame, and with it whatever the step had:
            # a file would stay open until cycles are collected.
            del error

    def shutdown(self, within=None, drop=False):
        """Accept no more jobs; return when those that were accepted are done,
        or dropped.

        Wait at most `within` seconds for each thread; None: as long as it
        takes.
        """
        with self._lock:
            self.closed = True
            with contextlib.suppress(queue.Empty):
                while drop:
                    self._jobs.get_nowait()
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(within)
