"""`interval`: since when is something appended and not durable?

The promise is that a crash takes back no more than one interval of commits.
This is a pure part of the sequencer, used under its mutex.  Times are seconds
of one clock.
"""


class Exposure:

    def __init__(self, interval: float) -> None:
        self._interval = interval
        #: When the oldest commit that is not durable was appended.
        self.since: float | None = None
        # The same, of the commits that the running sync does not cover.
        self._uncovered_since: float | None = None

    def appended(self, now: float) -> bool:
        """Must a commit that is appended now be durable to be acknowledged?

        Yes if the oldest commit that is not durable is older than the
        interval.  Then this holds for all commits behind it, too.
        """
        if self._uncovered_since is None:
            self._uncovered_since = now
        if self.since is None:
            self.since = now
        return now - self.since > self._interval

    def sync_begins(self, covers_all: bool) -> float | None:
        """Return what `sync_broken_off` needs."""
        uncovered_since = self._uncovered_since
        if covers_all:
            self._uncovered_since = None
        return uncovered_since

    def sync_broken_off(self, uncovered_since: float | None) -> None:
        self._uncovered_since = uncovered_since

    def synced(self, all_of_it: bool) -> None:
        if all_of_it:
            self._uncovered_since = None
        self.since = self._uncovered_since

    @property
    def due(self) -> float | None:
        """When the background sync should begin; None if nothing needs it.

        It begins after half of the interval: so a sync of usual length ends in
        time, and no commit has to wait.
        """
        if self.since is None:
            return None
        return self.since + self._interval / 2
