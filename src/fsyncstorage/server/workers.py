"""Threads for what may wait for the disk.

A pool of threads that are started when they are first needed.  Jobs are taken
in order.  What a job returns, or raises, goes to the loop through the mailbox.
"""

import queue
import threading


class Workers:

    def __init__(self, name, size, mailbox):
        self._name = name
        self._size = size
        self._mailbox = mailbox
        self._jobs = queue.SimpleQueue()
        self._lock = threading.Lock()  # of the next two
        self._threads = []
        self._closed = False
        self._busy = set()

    @property
    def waiting(self):
        return self._jobs.qsize()

    @property
    def busy(self):
        return len(self._busy)

    def submit(self, done, function, *arguments):
        """In the loop: `done(result, None)` or `done(None, error)` later."""
        with self._lock:
            if not self._closed:
                self._jobs.put((done, function, arguments))
                if len(self._threads) < self._size:
                    if self.waiting > len(self._threads) - self.busy:
                        self._start()

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
            self._mailbox.post(done, result, error)
            # While waiting for the next one, keep nothing of this one alive.
            del job, done, function, arguments, result, error

    def close(self):
        """Return when the last job is done; what comes later is not."""
        with self._lock:
            self._closed = True
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
