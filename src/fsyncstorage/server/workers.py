"""Threads for what may wait for the disk.

A pool of threads that are started when they are first needed.  Jobs are taken
in order.  What a job returns, or raises, goes to the loop through the mailbox.
"""

import contextlib
import queue
import threading

# Seconds for a job under way when all is closed.
PATIENCE = 1


class Workers:

    def __init__(self, name, size, mailbox):
        self._name = name
        self._size = size
        self._mailbox = mailbox
        self._jobs = queue.SimpleQueue()
        self._lock = threading.Lock()  # of the next three
        self._threads = []
        self._closed = False
        self._undone = 0
        self._busy = set()

    @property
    def waiting(self):
        return self._jobs.qsize()

    @property
    def busy(self):
        return len(self._busy)

    def submit(self, done, function, *arguments):
        """In the loop: `done(result, None)` or `done(None, error)` later.

        Return False when it is closed, and nothing will be done.
        """
        with self._lock:
            if not self._closed:
                self._jobs.put((done, function, arguments))
                self._undone += 1
                if len(self._threads) < min(self._size, self._undone):
                    self._start()
            return not self._closed

    def _start(self):
        thread = threading.Thread(
            target=self._run, daemon=True,
            name=f'{self._name} {len(self._threads) + 1}')
        self._threads.append(thread)
        thread.start()

    def _run(self):
        me = threading.get_ident()
        while True:
            job = self._jobs.get()
            if job is None:
                self._jobs.put(None)  # for the next one
                return
            self._busy.add(me)
            done, function, arguments = job
            try:
                result, error = function(*arguments), None
            except Exception as raised:
                result, error = None, raised
            self._busy.discard(me)
            with self._lock:
                self._undone -= 1
            self._mailbox.post(done, result, error)
            # While waiting for the next one, keep nothing of this one alive.
            del job, done, function, arguments, result, error

    def close(self):
        """Drop the jobs that wait, and see to it that the threads end.

        Not for longer than is decent: a job may wait for another server.
        """
        with self._lock:
            self._closed = True
            with contextlib.suppress(queue.Empty):
                while True:
                    self._jobs.get_nowait()
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(PATIENCE)
