"""The policies: when a commit is acknowledged, and what a crash may take back.

This module has only rules and settings.  It reads no clock and touches no
file.  The storage asks it what to wait for, the sequencer how to sync.  It has
the defaults of all settings that <fsyncstorage> has and <filestorage> lacks,
even those that are not about durability, and it refuses wrong values.

A *crash* is a power cut or a failure of the kernel.  When only the process
dies, the kernel still writes what was appended, whatever the policy.
"""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Policy:
    """One row of the table of promises."""

    name: str
    may_lose: str
    #: A commit is published and acknowledged only when it is durable.
    promises: bool = True
    #: Each commit has a sync of its own.
    single: bool = False
    #: The status byte is written only after a sync of the data.
    status_last: bool = False
    #: A leader may wait for others to share its sync.
    gathers: bool = False
    #: A thread syncs in the background.
    background: bool = False
    #: A sync also brings the commits into a log on other machines
    #: (commit.replica).
    replicated: bool = False

    def is_more_than(self, other: 'Policy') -> bool:
        """May a crash take back less of what was acknowledged?"""
        return ((self.replicated, self.promises, self.background)
                > (other.replicated, other.promises, other.background))


#: The policies that need nothing but a disk.
POLICIES = {
    policy.name: policy
    for policy in (
        Policy('none', 'anything since the last pack or close',
               promises=False),
        Policy('interval',
               'at most the last sync-interval plus one sync, newest first',
               promises=False, background=True),
        Policy('group-commit', 'nothing that was acknowledged', gathers=True),
        Policy('per-commit', 'nothing that was acknowledged', single=True),
        Policy('two-sync',
               'nothing that was acknowledged, and stock FileStorage never'
               ' opens a torn commit as good',
               gathers=True, status_last=True),
    )
}

#: It needs a log, which the storage is given (commit.replica).  So it cannot
#: be had for one transaction only.
QUORUM = Policy(
    'quorum', 'nothing that was acknowledged, also if a machine is lost',
    gathers=True, replicated=True)

DEFAULT_INDEX_CHECKPOINT = '64MB'
DEFAULT_READER_THREADS = 4
DEFAULT_SLOW_COMMIT_LOG = '0'
LONGEST_SLOW_COMMIT = 3600.0

SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.001, 3600.0
LONGEST_DELAY = 1.0
MOST_READER_THREADS = 64
#: Processes that read for the clients of a server.
MOST_READERS = 64
DEFAULT_LOCAL_READS_MODE = 0o600
LOCAL_READS_MODES = 0o600, 0o660
SMALLEST_CHECKPOINT = 16 << 10
LOWEST_PACK_RATE = 1 << 20
SLOWEST_SCRUB = 64 << 10

_SECONDS = {'us': 1e-6, 'ms': 1e-3, 's': 1.0, 'm': 60.0, 'h': 3600.0}
# Only zero needs no unit.
_DURATION = re.compile(r'(\d+(?:\.\d+)?)\s*(us|ms|s|m|h)$|0$')

_BYTES = {'': 1, 'kb': 1 << 10, 'mb': 1 << 20, 'gb': 1 << 30}
_SIZE = re.compile(r'(\d+)\s*(kb|mb|gb)?$')


def duration(value: object, what: str = 'a duration') -> float:
    """Seconds, from a number of seconds or from text like 200ms or 2s."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    match = _DURATION.match(str(value).strip().lower())
    if match is None:
        raise ValueError(
            f'{what} must be a number with a unit (us, ms, s, m or h),'
            f' like 200ms or 2s, not {value!r}')
    number, unit = match.groups()
    return float(number) * _SECONDS[unit] if unit else 0.0


def policy_named(name: str) -> Policy:
    if name == QUORUM.name:
        return QUORUM
    try:
        return POLICIES[name]
    except (KeyError, TypeError):
        allowed = ', '.join(POLICIES)
        raise ValueError(
            f'durability must be one of {allowed}, not {name!r}') from None


def sync_interval(value: object) -> float:
    seconds = duration(value, 'sync-interval')
    if not SHORTEST_INTERVAL <= seconds <= LONGEST_INTERVAL:
        raise ValueError(
            f'sync-interval must be between 1ms and 1h, not {value!r}; for a'
            ' sync with every commit choose durability group-commit')
    return seconds


def group_commit_delay(value: object) -> float | None:
    """Seconds to wait for company; None: as `Company` computes."""
    if value == 'auto':
        return None
    seconds = duration(value, 'group-commit-delay (or auto)')
    if not 0 <= seconds <= LONGEST_DELAY:
        raise ValueError(
            'group-commit-delay must be auto, or between 0 and 1s,'
            f' not {value!r}: every commit would wait that long')
    return seconds


def number_of_bytes(value: object, what: str) -> int:
    """The number of bytes, from a number or from text like 64MB."""
    match = _SIZE.match(str(value).strip().lower())
    if match is None:
        raise ValueError(
            f'{what} must be a number of bytes, or a number with KB, MB or'
            f' GB, not {value!r}')
    return int(match[1]) * _BYTES[match[2] or '']


def index_checkpoint(value: object) -> int:
    """Bytes after which an index is written."""
    return _at_least(SMALLEST_CHECKPOINT, value, 'index-checkpoint',
                     'an index would be written all the time')


def pack_rate(value: object) -> int | None:
    """Bytes a second that a pack may read and write; None: no limit."""
    if value is None or str(value).strip().lower() == 'none':
        return None
    return _at_least(LOWEST_PACK_RATE, value, 'pack-rate (or none)',
                     'a pack would never end')


def scrub_rate(value: object) -> int | None:
    """Bytes a second that a scrub reads; None: there is no scrub."""
    if str(value).strip().lower() == 'off':
        return None
    return _at_least(SLOWEST_SCRUB, value, 'scrub-rate (or off)',
                     'a large file would not be read within a year')


def _at_least(least: int, value: object, what: str, else_: str) -> int:
    size = number_of_bytes(value, what)
    if size < least:
        raise ValueError(
            f'{what} must be at least {least >> 10}KB, not {value!r}: {else_}')
    return size


def slow_commit_log(value: object) -> float:
    """A commit that takes this many seconds is slow; 0: no commit is."""
    seconds = duration(value, 'slow-commit-log (or 0)')
    if not 0 <= seconds <= LONGEST_SLOW_COMMIT:
        raise ValueError(
            'slow-commit-log must be 0 for none, or a time up to 1h, not'
            f' {value!r}')
    return seconds


def readers(value: object) -> int | None:
    """How many processes read for the clients of a server; None for 'auto'."""
    if value == 'auto':
        return None
    number = str(value)
    if number.isdecimal() and int(number) <= MOST_READERS:
        return int(number)
    raise ValueError('readers must be auto, or a number from 0 to'
                     f' {MOST_READERS}, not {value!r}')


def reader_threads(value: object) -> int:
    """How many threads of a server read data that are not in memory."""
    number = str(value)
    if number.isdecimal() and 1 <= int(number) <= MOST_READER_THREADS:
        return int(number)
    raise ValueError('reader-threads must be a number from 1 to'
                     f' {MOST_READER_THREADS}, not {value!r}')


def local_reads_mode(value: int) -> int:
    """The mode of the socket through which clients get the data file."""
    if value in LOCAL_READS_MODES:
        return value
    shown = f'{value:04o}' if isinstance(value, int) else repr(value)
    raise ValueError(f'local-reads-mode is 0600 or 0660, not {shown}')


def refuse_texts(**flags: object) -> None:
    """(`'off'` would be true.)"""
    for name, value in flags.items():
        if isinstance(value, str):
            raise ValueError(f'{name.replace("_", "-")} is True or False, not'
                             f' {value!r}')


@dataclasses.dataclass(frozen=True)
class Durability:
    """A policy with its settings."""

    policy: Policy
    sync_interval: float
    #: None: as `Company` computes.
    group_commit_delay: float | None


class Company:
    """How long a leader should wait for others before it syncs.

    It waits until as many committers are present as were seen around the last
    sync, for at most half the time of a sync, or a millisecond if that is
    longer.  A wrong guess is cheap, and a lone committer never waits.
    docs/internals/commit.rst explains why the wait saves time.
    """

    #: A wait for committers that are expected may take this many seconds, even
    #: if half of a sync takes less.
    LEAST_PATIENCE = 0.001
    #: Weight of the newest sync in the mean time of a sync.
    NEWEST = 0.25

    def __init__(self, delay: float | None) -> None:
        self._delay = delay
        self.expected = 1
        self._mean_sync = 0.0

    def synced(self, served: int, arrived: int, seconds: float) -> None:
        """A sync for `served` commits ended; `arrived` came during it."""
        self.expected = served + arrived
        if self._mean_sync:
            # One long stall should not change the mean too much.
            seconds = min(seconds, 4 * self._mean_sync)
            self._mean_sync += (seconds - self._mean_sync) * self.NEWEST
        else:
            self._mean_sync = seconds

    def patience(self, present: int) -> float:
        """Seconds to wait when `present` committers are there."""
        if self._delay is not None:
            return self._delay
        if present >= self.expected:
            return 0.0
        return max(self._mean_sync / 2, self.LEAST_PATIENCE)

    def complete(self, present: int) -> bool:
        """May the leader stop waiting before its patience ends?"""
        return self._delay is None and present >= self.expected
