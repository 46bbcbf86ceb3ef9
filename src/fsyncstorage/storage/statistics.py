"""Figures of a storage, for its operator: `stats()` and `histograms()`.

Each figure is counted in one place, by plain additions: the sequencer counts
what is appended and synced, the turns count the waits for objects, and the
rest is counted here.  Code that shows figures (the answer to `ruok`, the
metrics) reads them from here.
"""

import threading
from typing import Any

from ..commit.sequencer import Sequencer
from ..commit.turns import Turns
from ..histogram import Histogram


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


def stats(storage: Any) -> dict[str, object]:
    """Figures for monitoring, as a dictionary."""
    scrub, replica = storage._scrub, storage.replica
    return {
        'durability': storage.durability.policy.name,
        'read_only': storage.isReadOnly(),
        'unsealable': storage._unsealable,
        'scrub': None if scrub is None else scrub.stats(),
        'quorum': None if replica is None else replica.stats(),
        **({} if storage.isReadOnly() else _of_commits(
            storage._sequencer, storage._turns, storage._counts)),
    }


def _of_commits(sequencer: Sequencer, turns: Turns,
                counts: Counts) -> dict[str, object]:
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
        'syncing_since': sequencer.syncing_since,
        'commit_latency': counts.commit_time.summary(),
        'lock_wait': turns.waits.summary(),
        'lock_waiting': turns.waiting,
        'conflicts': counts.conflicts,
        'conflicts_resolved': counts.conflicts_resolved,
        **pipeline,
    }


def histograms(storage: Any) -> dict[str, Histogram]:
    """All durations that `stats` summarizes."""
    return {} if storage.isReadOnly() else {
        'sync_latency': storage._sequencer.latency,
        'commit_latency': storage._counts.commit_time,
        'lock_wait': storage._turns.waits,
    }
