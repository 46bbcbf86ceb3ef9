"""Does the work in a thread, and shows the progress.

The progress is asked for at most once a second, since the answer may come from
a server.
"""

import threading

from ..check.terminal import progress_bar

#: Seconds.
EVERY = 1.0
# The end of the progress bar.
_WHOLE = 1000

STAGES = {
    'check': 'checking the file',
    'references': 'reading references',
    'mark': 'finding what is reachable',
    'count': 'counting what is freed',
    'copy': 'copying',
    'swap': 'swapping the files',
}


class Work(threading.Thread):

    def __init__(self, function):
        super().__init__(daemon=True)
        self._function = function
        self._result = self.error = None
        self.is_over = threading.Event()
        self.start()

    def run(self):
        try:
            self._result = self._function()
        except BaseException as error:
            self.error = error
        finally:
            self.is_over.set()

    def result(self):
        self.is_over.wait()
        if self.error is not None:
            raise self.error
        return self._result


def look_on(work, ask):
    """Wait for the work, and return its result.

    `ask()` returns the progress, or None.
    """
    with progress_bar(_WHOLE, STAGES) as tell:
        while not work.is_over.wait(EVERY):
            found = ask()
            if found and found['phase'] in STAGES:
                tell(found['phase'], int(found['share'] * _WHOLE))
    return work.result()
