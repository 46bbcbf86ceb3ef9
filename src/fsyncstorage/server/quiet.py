"""Loggers that limit the lines which a peer can cause: a flood of errors must
not fill the log, nor keep the lines about others out of it.

The connections of one host have one allowance together: `BURST` lines, and one
more for each `INTERVAL` seconds that pass.  Hosts beyond `MOST_HOSTS` share
one.  So do the lines that are about no peer, from each place in the code.
Further lines are counted, and the next one that is written tells how many were
left out.

An entry is always one line, whatever name or label a peer has put into it.
"""

import logging
import threading
import time

BURST = 100
INTERVAL = 6
MOST_HOSTS = 100


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
        #: Of hosts; of all other hosts, by None; and of places in the code.
        self.allowances = {}

    def filter(self, record):
        with self._lock:
            allowance = self._of(record)
            if not allowance.take():
                return False
            left_out, allowance.left_out = allowance.left_out, 0
        record.msg, record.args = in_one_line(record.getMessage()), ()
        if left_out:
            record.msg += f' ({left_out} more lines were left out)'
        return True

    def _of(self, record):
        about = record.args[0] if isinstance(
            record.args, tuple) and record.args else None
        if isinstance(about, Label):
            key = about.host if self._has_room_for(about.host) else None
        else:
            key = record.pathname, record.lineno
        return self.allowances.setdefault(key, Allowance())

    def _has_room_for(self, host):
        if host in self.allowances:
            return True
        hosts = [key for key in self.allowances if isinstance(key, str)]
        if len(hosts) < MOST_HOSTS:
            return True
        full = [key for key in hosts if self.allowances[key].is_full()]
        for key in full:
            del self.allowances[key]
        return bool(full)


def in_one_line(text):
    """The text with newlines and other control characters escaped."""
    return text if text.isprintable() else ''.join(
        each if each.isprintable() else ascii(each)[1:-1] for each in text)


#: The filter of all these loggers.
said = Filter()
