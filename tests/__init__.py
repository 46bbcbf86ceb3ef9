"""The tests run in any terminal, and in none.

A background job of a script, and what it starts, ignores SIGINT and SIGQUIT.
Tests send these signals to their own process and to programs that they start,
and expect what happens at a terminal.  So they have their usual meaning in
every process that imports the tests, whichever runner does it.
"""

import signal

for _number, _usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)
