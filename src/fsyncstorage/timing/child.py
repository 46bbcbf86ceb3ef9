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

from . import interrupts
from .bond import Bond

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
    # A child is there whole or not at all; and so it goes.
    with interrupts.held() as before:
        process.start()
        sender.close()
        bond.fork()
        try:
            with interrupts.let(before):
                result, failure = _report_of(process, receiver, meanwhile)
                process.join(_GRACE)
        except EOFError:
            process.join()
            raise ChildFailed(
                'its process died with exit code'
                f' {process.exitcode}') from None
        finally:
            process.kill()
            receiver.close()
            all_ended = bond.end(_GRACE)
            _kill_group(process.pid)
            process.join()
    if not all_ended:
        raise ChildFailed('a process that it started does not end')
    if failure is not None:
        raise ChildFailed(failure)
    return result


def _report_of(process, receiver, meanwhile):
    while not receiver.poll(_TICK):
        # What it forked holds the pipe, too: its end may be no EOF.
        if not process.is_alive() and not receiver.poll():
            raise EOFError
        meanwhile()
    return receiver.recv()


def _kill_group(leader):
    """Programs of others hold no bond, and who watches them may be killed."""
    # Nobody is left: systems differ in how they say it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _report(bond, sender, function, arguments):
    bond.hold()
    # Ctrl-C is for the parent alone, and not for all that is started here.
    os.setpgrp()
    for each in interrupts.SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupts.SIGNALS)
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
