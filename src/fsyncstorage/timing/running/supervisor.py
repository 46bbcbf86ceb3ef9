"""One sample in a process of its own, and the end of all that it starts.

A process is forked for each sample.  So samples share no garbage, thread,
cache or open file, and one that hangs or dies does not harm the others.  The
process that calls must have no other threads, because a fork does not copy
them.

However a sample ends, it leaves no process behind:

- Ctrl-C, `kill` or the end of the terminal leave a note, and nothing else.
  The driver looks for it (`check`) where it waits for a sample, and nowhere
  else, so its cleaning up is not interrupted.
- The process of a sample leads a process group.  What it starts stays in
  there, and is killed with it.
- The bond is a pair of connected sockets: the driver has one end, and all
  processes of the sample have the other one.  When the last of them has ended,
  the driver reads the end of the stream: then none of them writes to the
  scratch directory any more.  When the driver dies, a process that does
  nothing else reads the end of the stream, and kills the group.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import traceback

SIGNALS = signal.SIGINT, signal.SIGHUP, signal.SIGTERM

FORK = multiprocessing.get_context('fork')

#: Seconds between two looks for a signal.
_TICK = 0.2
#: Seconds for processes that were killed to end.
_GRACE = 10

#: Has one of the signals come?
_interrupted = False


class Failed(Exception):
    """A measurement failed, or its process died; the text is one line."""


@contextlib.contextmanager
def interrupts_noted():
    """Inside the `with`, `check` raises the error of a signal."""
    global _interrupted

    def note(*ignored):
        global _interrupted
        _interrupted = True

    # A signal that is ignored stays ignored: `nohup` relies on that.
    before = {
        each: handler for each in SIGNALS
        if (handler := signal.getsignal(each)) is not signal.SIG_IGN}
    for each in before:
        signal.signal(each, note)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        _interrupted = False


def check():
    if _interrupted:
        raise KeyboardInterrupt


@contextlib.contextmanager
def child(work, *arguments, patience=0):
    """A process, and a pipe to it.

    `work` is called in the process with the other end of the pipe, and with
    the arguments.  When the `with` ends, the pipe is closed; the process has
    the seconds of `patience` to end by itself.
    """
    pipe, theirs = FORK.Pipe()
    process = FORK.Process(
        target=_begin, args=(pipe, theirs, work, arguments))
    process.start()
    theirs.close()
    try:
        yield process, pipe
    finally:
        pipe.close()
        if patience:
            process.join(patience)
        process.kill()
        process.join()


def _begin(drivers, pipe, work, arguments):
    drivers.close()
    work(pipe, *arguments)


def run(function, *arguments):
    """Call the function in a child, and return what it returns.

    The child and all that it started have ended when this returns or raises.
    """
    own, theirs = socket.socketpair()
    with child(_sample, own, theirs, function, arguments) as (process, pipe):
        theirs.close()
        try:
            result, failure = _answer_of(process, pipe)
        except EOFError:
            process.join()
            raise Failed('its process died with exit code'
                         f' {process.exitcode}') from None
        finally:
            all_ended = _end_all(process, own)
    if not all_ended:
        raise Failed('a process that it started does not end')
    if failure is not None:
        raise Failed(failure)
    return result


def _answer_of(process, pipe):
    while not pipe.poll(_TICK):
        # If its children hold the pipe, too, no EOF says that it ended.
        if not process.is_alive() and not pipe.poll():
            raise EOFError
        check()
    return pipe.recv()


def _end_all(process, bond):
    """Kill all of the sample; return whether they have ended."""
    process.kill()
    # Systems differ in the error for a group without processes.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    bond.settimeout(_GRACE)
    try:
        return bond.recv(1) == b''
    except TimeoutError:
        return False
    finally:
        bond.close()


def _sample(pipe, drivers, bond, function, arguments):
    drivers.close()
    # Ctrl-C in a terminal goes to a whole group: here, to the driver alone.
    os.setpgrp()
    for each in SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    if os.fork() == 0:
        bond.recv(1)  # the driver has died
        os.killpg(0, signal.SIGKILL)
    # Only the parent reports an error, in one line.
    logging.getLogger().addHandler(logging.NullHandler())
    answer(pipe, function, *arguments)


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
