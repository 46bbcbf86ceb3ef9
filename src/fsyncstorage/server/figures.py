"""What a server counts, in addition to stock's StorageStats.

All of it belongs to the event loop; others may read it.
"""

from ..histogram import Histogram


class Traffic:
    """Bytes received and sent, on all connections but read channels."""

    received = sent = 0


class Figures:
    """The figures of one storage."""

    def __init__(self):
        #: Read channels that are open; their requests, and the bytes on them.
        self.channels = self.requests = self.received = self.sent = 0
        #: Loads that were answered at once, and loads given to a thread.
        self.loads_from_memory = self.loads_from_disk = 0
        #: Invalidations: messages to a client about another's transaction.
        self.invalidations = 0
        #: Seconds from the request to vote to the answer to the finish.
        self.commit_time = Histogram()
