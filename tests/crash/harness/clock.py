"""The time of a site: it goes on only when told, and is the same in each run.

It stands in the place of the module `time` where the storage asks how old a
commit is.  A sync takes as long as `sync_takes` says.
"""


class Clock:

    def __init__(self):
        self.now = 0.0
        #: Seconds.
        self.sync_takes = 0.0

    def monotonic(self):
        return self.now
