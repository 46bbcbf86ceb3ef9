"""What asks the driver to end: Ctrl-C, `kill`, a terminal that is closed.

The first of them is a KeyboardInterrupt, and all others are nothing: what
stops all that was started, and removes it, is not stopped halfway.  Where even
the first would do harm it is held up, and raised a moment later.
"""

import contextlib
import signal

SIGNALS = signal.SIGINT, signal.SIGHUP, signal.SIGTERM


@contextlib.contextmanager
def once():
    interrupted = False

    def interrupt(*ignored):
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            raise KeyboardInterrupt

    # One that is ignored stays so: nohup means it.
    before = {
        each: handler for each in SIGNALS
        if (handler := signal.getsignal(each)) is not signal.SIG_IGN}
    for each in before:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def held():
    """One that comes meanwhile is raised at the end.

    Yields what `let` needs, to let them through in between.
    """
    return _masked(signal.SIG_BLOCK, SIGNALS)


def let(before):
    return _masked(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _masked(how, signals):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        signal.pthread_sigmask(how, signals)  # may raise one that waited
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
