"""The tests run in any terminal, and in none.

A script's background job, and what it starts, ignores SIGINT.  Tests send that
signal to their own process and to programs that they start, and expect of it
what a terminal's user expects; so it has its usual meaning in every process
that imports the tests, whichever runner does it.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
