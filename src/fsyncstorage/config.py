"""The ZConfig section <fsyncstorage>.

It extends ZODB's <filestorage>.  The types of its keys (component.xml) make
the same checks as the constructor, but earlier: so ZConfig can name the file
and the line of an error.
"""

import contextlib
from typing import Any

from ZODB.config import BaseConfig

from . import storage
from .commit import policies
from .errors import unknown_key
from .metrics import exporters
from .quorum.following import repacking
from .quorum.roles import role


def policy_name(value: str) -> str:
    return policies.policy_named(value.lower()).name


def local_reads_mode(value: str) -> int:
    return policies.local_reads_mode(int(value, 8))


def key_name(value: str) -> str:
    """The name of a key; an error names the nearest one."""
    key = value.lower()
    known = 'path', *(
        each.replace('_', '-') for each in FsyncStorage.KEYS)
    if key not in known:
        raise ValueError(unknown_key(value, known))
    return key


class FsyncStorage(BaseConfig):

    # Keys that are passed as arguments of the same name; FileStorage's first.
    KEYS = ('create', 'read_only', 'quota', 'blob_dir', 'pack_gc',
            'pack_keep_old', 'packer', 'durability', 'sync_interval',
            'group_commit_delay', 'checksums', 'index_checkpoint',
            'reader_threads', 'readers', 'pack_process', 'pack_rate',
            'local_reads', 'local_reads_mode', 'scrub_rate',
            'slow_commit_log')

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        wants_log = config.durability == policies.QUORUM.name
        if config.quorum is not None and not wants_log:
            raise ValueError(
                'the section <quorum> goes with "durability quorum" only')
        if wants_log and config.quorum is None and not config.read_only:
            raise ValueError(
                '"durability quorum" needs a section <quorum> in this one,'
                ' which says which node this is, and where its log is')
        if wants_log:
            self._refuse_what_a_node_cannot()

    def _refuse_what_a_node_cannot(self) -> None:
        config = self.config
        if config.create:
            raise ValueError(
                '"create true" does not go with "durability quorum": the file'
                ' is a copy of what the log has')
        if not config.checksums:
            raise ValueError(
                '"checksums off" does not go with "durability quorum": they'
                ' show when a log has lost what was acknowledged')

    def open(self) -> storage.FsyncStorage:
        if self.config.durability == policies.QUORUM.name and (
                not self.config.read_only):
            return self._open_node()
        opened = self._open()
        if self._metrics_address is not None:
            opened.metrics = exporters.Showing(
                self._metrics_address, self._shown_name, opened)
        return opened

    def _open_node(self) -> storage.FsyncStorage:
        """Wait until this node leads, then open the storage.

        Until then, the metrics show the node."""
        config = self.config
        with contextlib.ExitStack() as stack:
            showing: exporters.Showing | None = None

            def show(node: role.Node) -> None:
                nonlocal showing
                if self._metrics_address is not None:
                    showing = exporters.Showing(
                        self._metrics_address, self._shown_name, node=node)
                    stack.callback(showing.close)

            opened = role.opened(
                config.path, config.quorum.setup,
                policies.index_checkpoint(config.index_checkpoint),
                lambda primary, opened: self._open(
                    replica=primary, opened=opened), show,
                repacking.Options(
                    config.pack_process, policies.pack_rate(config.pack_rate),
                    config.pack_keep_old,
                    config.scrub_rate),
                config.blob_dir)
            if showing is not None:
                showing.has_opened(opened)
                opened.metrics = showing
            stack.pop_all()
        return opened

    @property
    def _metrics_address(self) -> exporters.Address | None:
        metrics = self.config.metrics
        return None if metrics is None else metrics.address

    @property
    def _shown_name(self) -> str:
        return self.name or self.config.path

    def _open(self, **more: Any) -> storage.FsyncStorage:
        config = self.config
        options = {
            key: getattr(config, key)
            for key in self.KEYS
            if getattr(config, key) is not None
        }
        return storage.FsyncStorage(config.path, **options, **more)
