"""Threads that start together, and the time until the last one is done."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor


class Crew:
    """Runs jobs, each in a thread of its own.

    A job is called with a function `start`: it prepares itself, calls
    `start()` once to wait for the others, works, and returns its result.
    `began` and `seconds` tell when the last job was ready, and how long after
    that all were done; `cpu_seconds`, what all threads of this process
    took of the processors meanwhile.

    A failing job is not covered up: its error is raised when all have ended.
    `failed` is set meanwhile, for jobs that would not end by themselves.
    """

    def __init__(self, jobs, at_start=lambda: None):
        self._jobs = jobs
        self._at_start = at_start
        self._barrier = threading.Barrier(len(jobs), action=self._go)
        self._errors = []
        self.failed = threading.Event()

    def run(self):
        with ThreadPoolExecutor(len(self._jobs)) as pool:
            results = [pool.submit(self._work, job) for job in self._jobs]
        if self._errors:
            raise self._errors[0]
        self.seconds = time.perf_counter() - self.began
        self.cpu_seconds = time.process_time() - self._cpu
        return [each.result() for each in results]

    def _go(self):
        self._at_start()
        self._cpu = time.process_time()
        self.began = time.perf_counter()

    def _work(self, job):
        try:
            return job(self._barrier.wait)
        except threading.BrokenBarrierError:
            pass  # another job failed before the start, and says why
        except BaseException as error:
            self._errors.append(error)
            self.failed.set()
            self._barrier.abort()
