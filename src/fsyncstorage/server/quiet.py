"""Loggers that limit the lines which a peer can cause: a flood of errors must
not fill the log.

Each place in the code that logs may write `BURST` lines, and one more for each
`INTERVAL` seconds that pass.  Further lines are counted, and the next one that
is written tells how many were left out.

An entry is always one line, whatever name or label a peer has put into it.
"""

import logging
import threading
import time

BURST = 10
INTERVAL = 60


def get_logger(name):
    logger = logging.getLogger(name)
    logger.addFilter(said)
    return logger


class Allowance:
    """`burst` lines at once, and one more for each `interval` seconds.  To be
    used by one thread at a time."""

    def __init__(self, burst, interval):
        self._burst = burst
        self._interval = interval
        self._allowed = burst
        self._since = time.monotonic()

    def take(self):
        """May one more line be written?"""
        now = time.monotonic()
        earned = (now - self._since) // self._interval
        if earned:
            self._allowed = min(self._burst, self._allowed + earned)
            self._since += earned * self._interval
        if not self._allowed:
            return False
        self._allowed -= 1
        return True


class _Place:

    def __init__(self):
        self.allowance = Allowance(BURST, INTERVAL)
        self.left_out = 0


class Filter:

    def __init__(self):
        self._lock = threading.Lock()
        self._places = {}  # one for each call in the code that logs

    def filter(self, record):
        with self._lock:
            key = record.pathname, record.lineno
            if key not in self._places:
                self._places[key] = _Place()
            place = self._places[key]
            if not place.allowance.take():
                place.left_out += 1
                return False
            left_out, place.left_out = place.left_out, 0
        say_in_one_line(record)
        if left_out:
            record.msg += f' ({left_out} such lines were left out)'
        return True


def say_in_one_line(record):
    """A filter that only does this, for loggers with another allowance."""
    record.msg, record.args = in_one_line(record.getMessage()), ()
    return True


def in_one_line(text):
    """The text with newlines and other control characters escaped."""
    return text if text.isprintable() else ''.join(
        each if each.isprintable() else ascii(each)[1:-1] for each in text)


#: The filter of all these loggers.
said = Filter()
