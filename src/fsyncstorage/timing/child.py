"""One measurement in a process of its own.

A child is forked for each: no garbage, thread, cache or open file is handed
from one measurement to the next, and what hangs or dies takes nothing with it.
Whoever calls must have no other threads, for they would not be there in the
child.  What the child starts in its turn ends with it: see `bond`.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import traceback

from .bond import Bond

#: What asks the driver to end.
INTERRUPTS = signal.SIGINT, signal.SIGTERM

_FORK = multiprocessing.get_context('fork')

#: Seconds between two calls of `meanwhile`.
_TICK = 0.2
#: Seconds a child has to end by itself once it has reported.
_GRACE = 10


class ChildFailed(Exception):
    """The measurement raised an error, or its process died."""


def run(function, *arguments, meanwhile=lambda: None):
    """Call the function in a child, and return what it returns.

    However this ends, Ctrl-C included, the child is gone afterwards, with all
    that it started.
    """
    receiver, sender = _FORK.Pipe(duplex=False)
    bond = Bond()
    process = _FORK.Process(
        target=_report, args=(bond, sender, function, arguments))
    with contextlib.ExitStack() as held:
        held.enter_context(_interrupts_held())
        process.start()
        sender.close()
        bond.fork()
        try:
            held.close()  # one that came meanwhile is raised here
            while not receiver.poll(_TICK):
                # What it forked holds the pipe, too: its end may be no EOF.
                if not process.is_alive() and not receiver.poll():
                    raise EOFError
                meanwhile()
            result, failure = receiver.recv()
            process.join(_GRACE)
        except EOFError:
            process.join()
            raise ChildFailed(
                'its process died with exit code'
                f' {process.exitcode}') from None
        finally:
            process.kill()
            process.join()
            receiver.close()
            all_ended = bond.end(_GRACE)
    if not all_ended:
        raise ChildFailed('a process that it started does not end')
    if failure is not None:
        raise ChildFailed(failure)
    return result


def _report(bond, sender, function, arguments):
    bond.hold()
    # Ctrl-C reaches every process of the terminal; here the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
    # An error is reported once, in one line, by the parent.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        sender.send((function(*arguments), None))
    except BaseException as error:
        sender.send((None, one_line(error)))


def one_line(error):
    """What happened, and where."""
    text = ' '.join(str(error).split())
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f'{os.path.basename(frame.filename)}, line {frame.lineno}'
    return f'{type(error).__name__}: {text} ({where})'


@contextlib.contextmanager
def _interrupts_held():
    """One during the fork waits: a child is there whole, or is not there."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
