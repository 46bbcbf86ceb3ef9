"""Threads that do each job that they were given, and none that was refused.

A ThreadPoolExecutor that cannot start a thread raises an error, and keeps the
job all the same: a thread that it starts later does it, long after the one
that gave it was told that it had failed.

Here a job is refused only if no thread runs: where the system starts no more
of them, those that run do all jobs.
"""

import concurrent.futures

from . import quiet

logger = quiet.get_logger(__name__)


class Threads:

    def __init__(self, size, name):
        self._size = size
        self._name = name
        #: A thread runs: it takes what the executor has, until the end.
        self._has_one = False
        self._begin()

    def _begin(self):
        self._executor = concurrent.futures.ThreadPoolExecutor(
            self._size, self._name)

    def submit(self, job, *arguments):
        """One thread at a time may call it.  RuntimeError: it is refused."""
        try:
            self._executor.submit(job, *arguments)
        except RuntimeError as error:  # of the system: there are too many
            if not self._has_one:
                self._begin()  # without this job
                raise
            logger.error('%s: a thread could not be started: %s',
                         self._name, error)
        else:
            self._has_one = True

    def shutdown(self):
        """Return when all is done; nothing may be given any more."""
        self._executor.shutdown()
