"""The ZConfig section <fsyncstorage>.

It extends ZODB's <filestorage>.  The types of its keys (component.xml) are
the checks of the constructor: they only run earlier, so that ZConfig names
file and line.
"""

import importlib
import pkgutil
from typing import Any

from ZODB.config import BaseConfig

from . import storage
from .commit import policies
from .metrics import exporters


def policy_name(value: str) -> str:
    return policies.policy_named(value.lower()).name


def local_reads_mode(value: str) -> int:
    return policies.local_reads_mode(int(value, 8))


def _packer(path: str) -> Any:
    """The object that `packer` names: module.name or module:expression."""
    module, colon, expression = path.partition(':')
    if colon:
        # As for <filestorage>: the expression is the operator's own.
        return eval(expression, vars(importlib.import_module(module)))
    return pkgutil.resolve_name(path)


class FsyncStorage(BaseConfig):

    # Arguments of the same name; those of FileStorage come first.
    KEYS = ('create', 'read_only', 'quota', 'blob_dir', 'pack_gc',
            'pack_keep_old', 'durability', 'sync_interval',
            'group_commit_delay', 'checksums', 'index_checkpoint',
            'reader_threads', 'pack_process', 'pack_rate', 'local_reads',
            'local_reads_mode', 'scrub_rate', 'slow_commit_log',
            'conflict_log')

    def open(self) -> storage.FsyncStorage:
        config = self.config
        options = {
            key: getattr(config, key)
            for key in self.KEYS
            if getattr(config, key) is not None
        }
        if config.packer:
            options['packer'] = _packer(config.packer)
        opened = storage.FsyncStorage(config.path, **options)
        if config.metrics is not None:
            opened.metrics = exporters.Showing(
                config.metrics.address, self.name or config.path, opened)
        return opened
