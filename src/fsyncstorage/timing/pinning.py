"""Which processors a server and its clients may use.

A process hands down to those that it starts what it may use itself.  So the
one that takes a sample limits itself to what its server is to have, starts it,
and then changes to what the clients are to have.
"""

import os

FREE = 'free'
#: Client and server take turns on one processor; or each has its own, and what
#: they say to each other crosses from one to the other.
SAME, ACROSS = 'same', 'across'


class Pinning:

    def __init__(self, name):
        self._server = self._clients = None
        if name != FREE:
            processors = sorted(os.sched_getaffinity(0))
            self._server = self._clients = processors[:1]
            if name == ACROSS:
                self._clients = processors[-1:]

    def start_server(self):
        """What this process starts from now on is the server."""
        self._use(self._server)

    def start_clients(self):
        self._use(self._clients)

    def _use(self, processors):
        if processors is not None:
            os.sched_setaffinity(0, processors)


def obstacle(name):
    """Why processes cannot be pinned that way, or None."""
    if name == FREE:
        return None
    if not hasattr(os, 'sched_setaffinity'):
        return 'processes cannot be bound to processors on this system'
    if name == ACROSS and len(os.sched_getaffinity(0)) < 2:
        return 'there is only one processor'
    return None
