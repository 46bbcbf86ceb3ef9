"""Runs a server that others wrote, for `served`.

Such a server knows nothing of the driver's pipe.  A process of ours starts it
and speaks for it: it tells the address when clients can connect, passes on
errors, and ends the server when the driver closes the pipe.
"""

import os
import shutil
import subprocess
import sys
import threading

from fsyncstorage.timing.running import served

_LAST_WORDS_SECONDS = 1


def found(program, *directories):
    """The path of a program, in PATH or in these directories; or None."""
    return shutil.which(program) or shutil.which(
        program, path=os.pathsep.join(directories))


def serve(pipe, command, address, *, ready, chatter, end, **options):
    """Run it until it has ended, and end with its exit code.

    On standard error, a line with `chatter` is no error; if it also has
    `ready`, clients can connect.  The signal `end` ends the server.
    """

    def listen():
        for line in process.stderr:
            if chatter not in line:
                sys.stderr.write(line)
            elif ready in line:
                pipe.send(address)

    def end_after_driver():
        served.answer(pipe)
        process.send_signal(end)

    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, **options)
    threading.Thread(target=end_after_driver, daemon=True).start()
    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    code = process.wait()
    # Its children may live on, and keep its standard error open.
    listener.join(_LAST_WORDS_SECONDS)
    sys.exit(code if code >= 0 else 128 - code)  # as a shell says it
