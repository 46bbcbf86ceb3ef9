"""Runs a server that others wrote as a program for `served`.

Such a server does not speak JSON.  A program of ours starts it and speaks for
it: the program tells the driver the address when clients can connect, passes
on errors, and ends the server when its own standard input is closed, or the
driver dies.
"""

import functools
import os
import shutil
import subprocess
import sys
import threading

from fsyncstorage.timing.servers import served

_LAST_WORDS_SECONDS = 1


def found(program, *directories):
    """The path of a program, in PATH or in these directories; or None."""
    return shutil.which(program) or shutil.which(
        program, path=os.pathsep.join(directories))


def serve(command, bond, address, *, ready, chatter, end, **options):
    """Run it, and return its exit code when it has ended.

    On standard error, a line with `chatter` is no error; if it also has
    `ready`, clients can connect.  The signal `end` ends the server.
    """

    def listen():
        for line in process.stderr:
            if chatter not in line:
                sys.stderr.write(line)
            elif ready in line:
                served.tell(address)

    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, **options)
    for needed in served.answer, functools.partial(os.read, bond, 1):
        threading.Thread(
            target=_end_after, args=(needed, process, end),
            daemon=True).start()
    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    code = process.wait()
    # Its children may live on, and keep its standard error open.
    listener.join(_LAST_WORDS_SECONDS)
    return code if code >= 0 else 128 - code  # as a shell says it


def _end_after(needed, process, end):
    needed()
    process.send_signal(end)
