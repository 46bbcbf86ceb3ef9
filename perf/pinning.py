"""Which processors a server and its clients may use.

Children of a process may use the same processors as the process itself.  So
the process that takes a sample limits itself to those of the server, starts
it, and then changes to those of the clients.
"""

import contextlib
import functools
import os

from .campaign import missing

FREE = 'free'
#: Client and server take turns on one processor, or each has its own.
SAME, ACROSS = 'same', 'across'


class PinnedSite:
    """A contestant whose server and clients are bound to processors."""

    def __init__(self, site):
        self.site = site
        self.name, self.summary = site.name, site.summary
        self.can_be_slowed = site.can_be_slowed
        self.missing = functools.partial(missing, site)

    @contextlib.contextmanager
    def running(self, directory, *, pin, **settings):
        processors = sorted(os.sched_getaffinity(0))
        if pin != FREE:
            os.sched_setaffinity(0, processors[:1])
        with self.site.running(directory, **settings) as site:
            if pin == ACROSS:
                os.sched_setaffinity(0, processors[-1:])
            yield site


def obstacle(directory):
    """Why processes cannot be pinned, or None."""
    if not hasattr(os, 'sched_setaffinity'):
        return 'processes cannot be bound to processors on this system'
    if len(os.sched_getaffinity(0)) < 2:
        return 'there is only one processor'
    return None
