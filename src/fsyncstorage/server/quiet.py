"""Loggers whose lines a peer can cause: a flood of errors fills no log.

Each place in the code that logs may write `BURST` lines, and one more for each
`INTERVAL` seconds that pass.  The others are counted, and the next line tells
how many were left out.

An entry is one line, whatever name or label a peer has put into it.
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


class _Place:

    def __init__(self, now, burst):
        self.allowed = burst
        self.since = now
        self.left_out = 0


class Filter:

    def __init__(self, burst=BURST, interval=INTERVAL):
        self._burst = burst
        self._interval = interval
        self._lock = threading.Lock()
        self._places = {}  # as many as there are in the code

    def filter(self, record):
        with self._lock:
            now = time.monotonic()
            place = self._places.setdefault(
                (record.pathname, record.lineno), _Place(now, self._burst))
            earned = (now - place.since) // self._interval
            if earned:
                place.allowed = min(self._burst, place.allowed + earned)
                place.since += earned * self._interval
            if not place.allowed:
                place.left_out += 1
                return False
            place.allowed -= 1
            left_out, place.left_out = place.left_out, 0
        text = in_one_line(record.getMessage())
        if left_out:
            text += f' ({left_out} such lines were left out)'
        record.msg, record.args = text, ()
        return True


def in_one_line(text):
    """Without newlines and other control characters."""
    return text if text.isprintable() else ''.join(
        each if each.isprintable() else ascii(each)[1:-1] for each in text)


#: The filter of all these loggers, but for those that have one of their own.
said = Filter()
