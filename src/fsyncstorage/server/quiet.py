"""Loggers that limit the lines which a peer can cause: a flood of errors must
not fill the log, nor keep the lines about others out of it.

Each place in the code that logs may write `BURST` lines about each connection,
and one more for each `INTERVAL` seconds that pass.  All connections from one
host together may cause as many lines as `MOST_OF_A_HOST` of them; hosts beyond
`MOST_HOSTS` have one allowance together, and so have lines that are about no
peer.  Further lines are counted, and the next one that is written tells how
many were left out.

An entry is always one line, whatever name or label a peer has put into it.
"""

import logging
import threading
import time

BURST = 10
INTERVAL = 60
MOST_OF_A_HOST = 10
MOST_HOSTS = 100


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

    def _earn(self):
        earned = (time.monotonic() - self._since) // self._interval
        if earned:
            self._allowed = min(self._burst, self._allowed + earned)
            self._since += earned * self._interval

    def is_full(self):
        """Is it as if nothing had been written?"""
        self._earn()
        return self._allowed == self._burst

    def take(self):
        """May one more line be written?"""
        self._earn()
        if not self._allowed:
            return False
        self._allowed -= 1
        return True


class _Place:
    """A call in the code that logs, for as many connections."""

    def __init__(self, connections=1):
        self.allowance = Allowance(BURST * connections, INTERVAL / connections)
        self.left_out = 0


class Label:
    """What a line about a peer begins with: its first argument."""

    def __init__(self, text, host):
        self.text = text
        self.host = host
        self.places = {}

    def __str__(self):
        return self.text


class Filter:

    def __init__(self):
        self._lock = threading.Lock()
        self._places = {}  # place -> host -> _Place

    def filter(self, record):
        with self._lock:
            left_out = self._take(record)
        if left_out is None:
            return False
        say_in_one_line(record)
        if left_out:
            record.msg += f' ({left_out} such lines were left out)'
        return True

    def _take(self, record):
        """How many lines were left out before this one; None: it is, too."""
        key = record.pathname, record.lineno
        about = record.args[0] if isinstance(
            record.args, tuple) and record.args else None
        if isinstance(about, Label):
            places = _of(about.places, key), self._of_host(key, about.host)
        else:
            places = self._of_host(key, None),
        for place in places:
            if not place.allowance.take():
                place.left_out += 1
                return None
        left_out = sum(place.left_out for place in places)
        for place in places:
            place.left_out = 0
        return left_out

    def _of_host(self, key, host):
        hosts = self._places.setdefault(key, {})
        if host not in hosts and len(hosts) >= MOST_HOSTS:
            for each in [each for each, place in hosts.items()
                         if place.allowance.is_full()]:
                del hosts[each]
            if len(hosts) >= MOST_HOSTS:
                host = None
        return _of(hosts, host, 1 if host is None else MOST_OF_A_HOST)


def _of(places, key, *connections):
    if key not in places:
        places[key] = _Place(*connections)
    return places[key]


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
