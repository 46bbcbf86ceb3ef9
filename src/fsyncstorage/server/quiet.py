"""Loggers that limit the lines which a peer can cause: a flood of errors must
not fill the log, nor keep the lines about others out of it.

Each place in the code that logs may write `BURST` lines about the connections
of one host, and one more for each `INTERVAL` seconds that pass.  The lines
that are about no peer share an allowance, and so do those of further hosts
when there are `MOST` allowances.  Further lines are counted, and the next one
that is written tells how many were left out.

An entry is always one line, whatever name or label a peer has put into it.
"""

import logging
import threading
import time

BURST = 100
INTERVAL = 6
MOST = 1000


def get_logger(name):
    logger = logging.getLogger(name)
    logger.addFilter(said)
    return logger


class Label:
    """What a line about a peer begins with: its first argument."""

    def __init__(self, text, host):
        self.text = text
        self.host = host

    def __str__(self):
        return self.text


class Allowance:

    def __init__(self):
        self.left_out = 0
        self._allowed = BURST
        self._since = time.monotonic()

    def _earn(self):
        earned = (time.monotonic() - self._since) // INTERVAL
        if earned:
            self._allowed = min(BURST, self._allowed + earned)
            self._since += earned * INTERVAL

    def is_full(self):
        """Is it as if nothing had been written?"""
        self._earn()
        return self._allowed == BURST

    def take(self):
        """May one more line be written?"""
        self._earn()
        if not self._allowed:
            self.left_out += 1
            return False
        self._allowed -= 1
        return True


class Filter:

    def __init__(self):
        self._lock = threading.Lock()
        #: By host (None: all others, or no peer), and place in the code.
        self.allowances = {}

    def filter(self, record):
        about = record.args[0] if isinstance(
            record.args, tuple) and record.args else None
        host = about.host if isinstance(about, Label) else None
        with self._lock:
            allowance = self._of(host, (record.pathname, record.lineno))
            if not allowance.take():
                return False
            left_out, allowance.left_out = allowance.left_out, 0
        record.msg, record.args = in_one_line(record.getMessage()), ()
        if left_out:
            record.msg += f' ({left_out} more lines were left out)'
        return True

    def _of(self, host, place):
        if (host, place) not in self.allowances:
            if len(self.allowances) >= MOST:
                self._forget_the_silent()
            if len(self.allowances) >= MOST:
                host = None
        return self.allowances.setdefault((host, place), Allowance())

    def _forget_the_silent(self):
        for (host, place), each in [*self.allowances.items()]:
            if host is not None and each.is_full():
                del self.allowances[host, place]
                self.allowances.setdefault(
                    (None, place), Allowance()).left_out += each.left_out


def in_one_line(text):
    """The text with newlines and other control characters escaped."""
    return text if text.isprintable() else ''.join(
        each if each.isprintable() else ascii(each)[1:-1] for each in text)


#: The filter of all these loggers.
said = Filter()
