"""How other threads reach the event loop.

`post` may be called from any thread, but not from a signal handler.  Functions
that are posted run in the loop, in order; all that wait at the same time run
in one callback.
"""

import collections
import threading

from . import quiet

logger = quiet.get_logger(__name__)


class Mailbox:

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
        while True:
            with self._lock:
                if not self._letters:
                    self._scheduled = False
                    return
                function, arguments = self._letters.popleft()
            attempt(function, *arguments)


def attempt(function, *arguments):
    """Call it; if it fails, which should never happen, log that and go on."""
    try:
        function(*arguments)
    except Exception:  # the other callbacks must run
        logger.exception('an error in the server')
