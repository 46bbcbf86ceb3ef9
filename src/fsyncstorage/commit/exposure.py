"""`interval`: since when is something appended and not durable?

The promise is that a crash takes back no more than one interval of commits.  A
pure part of the sequencer, under its mutex; times are seconds of one clock.
"""


class Exposure:

    def __init__(self, interval: float) -> None:
        self._interval = interval
        #: When the oldest commit was appended that is not durable.
        self.since: float | None = None
        # The same for commits that the running sync does not cover.
        self._uncovered_since: float | None = None

    def appended(self, now: float) -> bool:
        """Must a commit of this moment be acknowledged only when durable?

        Yes if something has not been durable for longer than the interval;
        then this holds for all commits behind it, too.
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

        That is after half of the interval: so a sync of usual length ends in
        time, and no commit has to wait.
        """
        if self.since is None:
            return None
        return self.since + self._interval / 2
