"""One sample in a process of its own, and the end of all that it starts.

A process is forked for each sample: no garbage, thread, cache or open file is
handed from one to the next, and what hangs or dies takes nothing with it.  The
process that calls must have no other threads, for they would not be there in
the child.

However a sample ends, nobody is left behind:

- Ctrl-C, `kill` and a closed terminal are a KeyboardInterrupt the first time,
  and nothing after that: what ends and removes all that was started is not
  stopped halfway.  Where even the first would do harm it is `held`.
- The bond is a pair of connected sockets: the driver has one end, and every
  process of the sample, however far down, the other.  When the driver is gone,
  or lets go, each of them reads that from its end, and ends.  When the last of
  them is gone, the driver reads that from its own: then nobody writes to the
  scratch directory any more.
- Programs of others hold no bond.  They are in the group of the sample's
  process, which is killed.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import threading
import traceback

SIGNALS = signal.SIGINT, signal.SIGHUP, signal.SIGTERM

FORK = multiprocessing.get_context('fork')

#: Seconds between two calls of `meanwhile`.
_TICK = 0.2
#: Seconds for processes to end by themselves.
_GRACE = 10

#: The end of the bond that this process has; None outside of a sample.
_held = None


class Failed(Exception):
    """A measurement raised an error, or its process died; one line."""


@contextlib.contextmanager
def one_interrupt():
    """Of all that come meanwhile, only the first one is an exception."""
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
    """An interrupt that comes meanwhile is raised at the end.

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


def run(function, *arguments, meanwhile=lambda: None):
    """Call the function in a child, and return what it returns.

    However this ends, the child is gone afterwards, with all that it started.
    """
    own, theirs = socket.socketpair()
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(
        target=_work, args=(own, theirs, sender, function, arguments))
    # A child is there whole or not at all; and so it goes.
    with held() as before:
        process.start()
        sender.close()
        theirs.close()
        try:
            with let(before):
                result, failure = _answer_of(process, receiver, meanwhile)
                process.join(_GRACE)
        except EOFError:
            process.join()
            raise Failed('its process died with exit code'
                         f' {process.exitcode}') from None
        finally:
            process.kill()
            receiver.close()
            all_ended = _end_all(own)
            # Nobody is left: systems differ in how they say it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.join()
    if not all_ended:
        raise Failed('a process that it started does not end')
    if failure is not None:
        raise Failed(failure)
    return result


def _answer_of(process, receiver, meanwhile):
    while not receiver.poll(_TICK):
        # What it forked holds the pipe, too: its end may be no EOF.
        if not process.is_alive() and not receiver.poll():
            raise EOFError
        meanwhile()
    return receiver.recv()


def _end_all(bond):
    """Tell all that hold it to end, and wait until they did."""
    bond.shutdown(socket.SHUT_WR)
    bond.settimeout(_GRACE)
    try:
        return bond.recv(1) == b''
    except TimeoutError:
        return False
    finally:
        bond.close()


def _work(drivers, bond, sender, function, arguments):
    global _held
    drivers.close()
    # It needs no thread that follows: the driver ends it, or what it awaits.
    _held = bond
    _held.set_inheritable(True)
    # Ctrl-C is for the parent alone, and not for all that is started here.
    os.setpgrp()
    for each in SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    # An error is reported once, in one line, by the parent.
    logging.getLogger().addHandler(logging.NullHandler())
    answer(sender, function, *arguments)


def answer(pipe, function, *arguments):
    """Send what the function returned, or its error; the other is None."""
    try:
        pipe.send((function(*arguments), None))
    except BaseException as error:
        pipe.send((None, one_line(error)))


def one_line(error):
    """What happened, and where."""
    text = ' '.join(str(error).split())
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f'{os.path.basename(frame.filename)}, line {frame.lineno}'
    return f'{type(error).__name__}: {text} ({where})'


def bond():
    """Its number, to hand it to a program that is started."""
    return _held.fileno()


def follow(descriptor=None):
    """End this process, at once, when the driver is gone or lets go.

    A program that was started is told the number of the bond.
    """
    global _held
    if descriptor is not None:
        _held = socket.socket(fileno=descriptor)

    def end_after():
        os.read(bond(), 1)
        os._exit(1)

    threading.Thread(target=end_after, daemon=True).start()
