"""One sample in a process of its own, and the end of all that it starts.

A process is forked for each sample.  So samples share no garbage, thread,
cache or open file, and one that hangs or dies does not harm the others.  The
process that calls must have no other threads, because a fork does not copy
them.

However a sample ends, it leaves no process behind:

- The first Ctrl-C, `kill` or end of the terminal is a KeyboardInterrupt; later
  ones are ignored, so that the cleaning up is not interrupted.  Where even the
  first one would do harm, it is `held`.
- The bond is a pair of connected sockets: the driver has one end, and all
  processes of the sample, children of children too, have the other.  When the
  driver dies or closes its end, each process reads the end of the stream, and
  ends.  When the last process has ended, the driver reads the end of the
  stream: then none of them writes to the scratch directory any more.
- Programs that are not ours do not know the bond.  They are in the process
  group of the sample, which is killed.
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

#: This process's end of the bond; None outside of a sample.
_held = None


class Failed(Exception):
    """A measurement failed, or its process died; the text is one line."""


@contextlib.contextmanager
def one_interrupt():
    """Inside the `with`, only the first signal is an exception."""
    interrupted = False

    def interrupt(*ignored):
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            raise KeyboardInterrupt

    # A signal that is ignored stays ignored: `nohup` relies on that.
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
    """An interrupt inside the `with` is raised at its end.

    Yields what `let` needs, inside of which interrupts are raised at once.
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

    The child and all that it started have ended when this returns or raises.
    """
    own, theirs = socket.socketpair()
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(
        target=_work, args=(own, theirs, sender, function, arguments))
    # An interrupt must not come between the start and the `try`, nor in
    # `finally`: it would leave a child behind.
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
            # Systems differ in the error for a group without processes.
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
        # If its children hold the pipe, too, no EOF says that it ended.
        if not process.is_alive() and not receiver.poll():
            raise EOFError
        meanwhile()
    return receiver.recv()


def _end_all(bond):
    """Tell all that hold the bond to end; return whether they have ended."""
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
    # This process does not have to `follow`: the driver kills it.
    _held = bond
    _held.set_inheritable(True)
    # Ctrl-C in a terminal goes to a whole group: here, to the parent alone.
    os.setpgrp()
    for each in SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    # Only the parent reports an error, in one line.
    logging.getLogger().addHandler(logging.NullHandler())
    answer(sender, function, *arguments)


def answer(pipe, function, *arguments):
    """Send a pair: what the function returned or None, its error or None."""
    try:
        pipe.send((function(*arguments), None))
    except BaseException as error:
        pipe.send((None, one_line(error)))


def one_line(error):
    """What the error is, and where it was raised."""
    text = ' '.join(str(error).split())
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f'{os.path.basename(frame.filename)}, line {frame.lineno}'
    return f'{type(error).__name__}: {text} ({where})'


def bond():
    """The descriptor of the bond, for a program that is started."""
    return _held.fileno()


def follow(descriptor=None):
    """End this process at once when the driver dies or ends the sample.

    A program that was started gives the descriptor of the bond.
    """
    global _held
    if descriptor is not None:
        _held = socket.socket(fileno=descriptor)

    def end_after():
        os.read(bond(), 1)
        os._exit(1)

    threading.Thread(target=end_after, daemon=True).start()
