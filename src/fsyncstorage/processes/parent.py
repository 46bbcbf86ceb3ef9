"""The parent of one of our processes, seen from the process.

Commands arrive on the standard input; reports go to what was the standard
output.  Each is a line of JSON.

The process ends when its parent ends.  It notices this because its standard
input ends, or because it has another parent then.  (Its input does not end
while another child of the parent holds the other end of the socket.)
"""

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from . import priority
from .version import VERSION

Message = dict[str, Any]

# Seconds between two checks whether the process still has its parent.
_LOOK_AFTER = 1.0


def serve(pid: int, work: Callable[[Message, 'ParentProcess'], Message],
          failure: Callable[[Exception], Message]) -> None:
    """Do one job, give way to all others, and end this process.

    The last report is what `work(job, parent)` returns, or `failure(error)`.
    """
    priority.give_way()
    parent = ParentProcess(pid)
    try:
        parent.report(work(parent.job(), parent))
    except Exception as error:
        parent.report(failure(error))
    # An ordinary exit would wait for the thread that reads commands.
    os._exit(0)


class ParentProcess:
    """`pid` is the process id of the parent."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        # A supervisor that stops all processes sends SIGTERM to the parent,
        # too.  The parent then ends this process in its own way.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._reports = os.fdopen(os.dup(1), 'w')
        os.dup2(2, 1)  # other output must not look like a report
        self._commands: queue.SimpleQueue[Message] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            for line in sys.stdin:
                self._commands.put(json.loads(line))
        finally:
            os._exit(1)  # the parent has ended, or has sent nonsense

    def job(self) -> Message:
        """Report that this process is ready, and return its job."""
        self.report({'ready': VERSION})
        return self.command()

    def command(self) -> Message:
        while True:
            self._end_with_the_parent()
            with contextlib.suppress(queue.Empty):
                return self._commands.get(timeout=_LOOK_AFTER)

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._end_with_the_parent()
            time.sleep(min(left, _LOOK_AFTER))

    def _end_with_the_parent(self) -> None:
        if os.getppid() != self._pid:
            os._exit(1)

    def tell(self, phase: str, done: int, total: int) -> None:
        """Report the progress."""
        self.report({'tell': [phase, done, total]})

    def report(self, message: Message) -> None:
        self._end_with_the_parent()
        try:
            self._reports.write(json.dumps(message) + '\n')
            self._reports.flush()
        except OSError:  # the parent has ended since the check above
            os._exit(1)
