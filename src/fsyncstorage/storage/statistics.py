"""Figures of a storage, for its operator: `stats()` and `histograms()`.

Each figure is counted in one place, by plain additions: the sequencer counts
what is appended and synced, the turns count the waits for objects, and the
rest is counted here.  Code that shows figures (the answer to `ruok`, the
metrics) reads them from here.
"""

import threading
from collections.abc import Callable
from typing import Any

from ..commit.policies import Durability
from ..commit.sequencer import Sequencer
from ..commit.turns import Turns
from ..histogram import Histogram
from .transaction import Metadata
from .transaction import Transaction


class Counts:
    """Counts that any thread may add to."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()  # a leaf
        #: Commits of threads that failed because of a conflict.  (A server
        #: counts those of its clients.)
        self.conflicts = 0
        #: Objects whose conflicts were resolved, in committed transactions.
        self.conflicts_resolved = 0
        #: The time from a vote to the end of its finish.  (Commits that are
        #: told later, by an AsyncFinish, are counted by the code that tells.)
        self.commit_time = Histogram()

    def conflict(self) -> None:
        with self._mutex:
            self.conflicts += 1

    def resolved(self, objects: int) -> None:
        with self._mutex:
            self.conflicts_resolved += objects


class Statistics:

    # Of the storage.
    _counts: Counts
    _is_read_only: bool
    replica: Any
    _scrub: Any
    _sequencer: Sequencer
    _turns: Turns
    durability: Durability
    _find: Callable[[Metadata], Transaction | None]

    #: How many transactions had no room for a seal.
    _unsealable = 0

    def stats(self) -> dict[str, object]:
        """Figures for monitoring, as a dictionary."""
        return {
            'durability': self.durability.policy.name,
            'read_only': self._is_read_only,
            'unsealable': self._unsealable,
            'scrub': None if self._scrub is None else self._scrub.stats(),
            'quorum': None if self.replica is None else self.replica.stats(),
            **({} if self._is_read_only else self._stats_of_commits()),
        }

    def _stats_of_commits(self) -> dict[str, object]:
        sequencer, counts = self._sequencer, self._counts
        with sequencer.mutex:
            commits, syncs = sequencer.commits, sequencer.syncs
            committed_bytes = sequencer.committed_bytes
            pipeline = sequencer.pipeline.stats()
        return {
            'commits': commits,
            'committed_bytes': committed_bytes,
            'syncs': syncs,
            'commits_per_sync': commits / syncs if syncs else 0.0,
            'sync_latency': sequencer.latency.summary(),
            'commit_latency': counts.commit_time.summary(),
            'lock_wait': self._turns.waits.summary(),
            'lock_waiting': self._turns.waiting,
            'conflicts': counts.conflicts,
            'conflicts_resolved': counts.conflicts_resolved,
            **pipeline,
        }

    def histograms(self) -> dict[str, Histogram]:
        """All durations that `stats` summarizes."""
        return {} if self._is_read_only else {
            'sync_latency': self._sequencer.latency,
            'commit_latency': self._counts.commit_time,
            'lock_wait': self._turns.waits,
        }
