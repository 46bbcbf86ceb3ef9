"""The figures of one storage at one moment.

They are those of `stats()` and of the server's answer to `ruok`, which any
thread may ask for, and the histograms behind them.  For a storage that is not
ours, there is only what a server counts: no code of that storage is run to
show it.
"""

import time
from typing import Any

import ZODB.TimeStamp
from ZODB.utils import z64

from ..histogram import Histogram
from ..pack.progress import NOTHING
from ..pack.progress import PACKED
from . import backups


class Reading:

    def __init__(self, name: str, storage: Any, service: Any,
                 node: Any = None) -> None:
        self.name = name
        #: Figures of a node (`quorum`), whether its storage is open or not.
        self.quorum: dict[str, Any] = {}
        #: Figures of a server; empty without a server.
        self.server: dict[str, Any] = service.own_status() if service else {}
        self.storage: dict[str, Any] = {}
        self.packs: dict[str, Any] = {}
        #: What a backup says of itself.
        self.backup: dict[str, Any] = {}
        #: When the last successful pack ended.
        self.packed: float | None = None
        self.size: dict[str, int] = service.announced_size if service else {}
        if storage is not None:
            self.storage = storage.stats()
            self.quorum = self.storage.get('quorum') or {}
            self.packs = storage.packs.status()
            ago = storage.packs.succeeded_ago
            self.packed = None if ago is None else time.time() - ago
            self.size = {'length': len(storage), 'size': storage.getSize()}
            self.backup = backups.read(storage.getName())
        elif node is not None:
            self.quorum = node.stats()
        #: What the storage counts has precedence: a server counts only what
        #: its clients do, but threads of the process may commit, too.
        self.counts = {**self.server, **{
            name: value for name, value in self.storage.items()
            if value is not None}}
        self.scrub: dict[str, Any] = self.storage.get('scrub') or {}
        #: By name: the storage's own histogram, and that of its clients.
        self.histograms: dict[str, list[Histogram]] = {}
        for source in storage, service:
            if source is not None:
                for each, histogram in source.histograms().items():
                    self.histograms.setdefault(each, []).append(histogram)

    def at(self, path: str) -> Any:
        """A figure: an attribute, or what a dict has; None: there is none."""
        table, _, name = path.rpartition('.')
        return (getattr(self, table).get(name) if table
                else getattr(self, name))

    @property
    def conflicts(self) -> int | None:
        """Conflicts of threads of the process, and of a server's clients."""
        counted = [figures['conflicts']
                   for figures in (self.storage, self.server)
                   if 'conflicts' in figures]
        return sum(counted) if counted else None

    @property
    def loads(self) -> dict[str, int]:
        """Loads of a server's clients, by where they were answered from."""
        return {source: self.server[f'loads-from-{source}']
                for source in ('memory', 'disk', 'readers') if self.server}

    @property
    def waiting(self) -> dict[str, int]:
        """Transactions, by what they wait for."""
        waiting = {
            'vote': self.server.get('waiting',
                                    self.storage.get('lock_waiting')),
            'sync': self.storage.get('waiting')}
        return {what: number for what, number in waiting.items()
                if number is not None}

    @property
    def last_durable(self) -> float | None:
        """The time of the last commit that is durable, by its tid."""
        tid = self.storage.get('last_durable', z64)
        if tid == z64:
            return None
        return float(ZODB.TimeStamp.TimeStamp(tid).timeTime())

    @property
    def writing_stopped(self) -> bool | None:
        if 'writing_stopped' not in self.storage:
            return None
        return self.storage['writing_stopped'] is not None

    @property
    def leads(self) -> bool | None:
        """Whether a node of a quorum writes."""
        role = self.quorum.get('role')
        return None if role is None else role == 'primary'

    @property
    def standbys_silence(self) -> dict[str, float]:
        return {name: said['silence'] for name, said in self._standbys.items()}

    @property
    def standbys_lag(self) -> dict[str, float]:
        return {name: said['lag'] for name, said in self._standbys.items()}

    @property
    def standbys_in_trouble(self) -> dict[str, bool]:
        return {name: bool(said['trouble'])
                for name, said in self._standbys.items()}

    @property
    def _standbys(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.quorum.get('others', {})
        return found

    @property
    def log_limit(self) -> int | None:
        """None: there is no limit."""
        return self.quorum.get('log_limit') or None

    @property
    def pack(self) -> dict[str, float]:
        """The phase of the pack that is under way, and how far it is."""
        pack = self.packs.get('pack')
        if not pack or not pack['phase']:  # none, or it is just beginning
            return {}
        return {pack['phase']: pack['done'] / max(pack['total'], 1)}

    @property
    def scrubbed(self) -> float | None:
        """How far this pass of the scrub is."""
        end = self.scrub.get('end')
        return end and self.scrub['position'] / end

    @property
    def last_pack(self) -> dict[str, Any]:
        """The last pack since the storage was opened; {} if there is none."""
        last = self.packs.get('last')
        return {
            'ended': time.time() - last['ago'],
            'took': last['seconds'],
            'succeeded': last['outcome'] in (PACKED, NOTHING),
        } if last else {}
