"""What a server counts, beside stock's StorageStats.

All of it belongs to the event loop; others may read it.
"""

from ..histogram import Histogram


class Traffic:
    """Bytes received and sent, on all connections but read channels."""

    received = sent = 0


class Figures:
    """Of one storage."""

    def __init__(self):
        #: Read channels that are open; their requests, and the bytes on them.
        self.channels = self.requests = self.received = self.sent = 0
        #: Loads that were answered at once, and those that a thread was given.
        self.loads_from_memory = self.loads_from_disk = 0
        #: Messages that told a client of the transaction of another.
        self.invalidations = 0
        #: From the request to vote to the answer that it is committed.
        self.commit_time = Histogram()
