"""The ZConfig section <fsyncstorage>.

It extends ZODB's <filestorage>.  The keys are checked as in the constructor;
here the checks only run early, so that ZConfig names file and line.
"""

import importlib
from typing import Any

from ZODB.config import BaseConfig

from . import storage
from .commit import policies


def policy_name(value: str) -> str:
    return policies.policy_named(value.lower()).name


def sync_interval(value: str) -> str:
    policies.sync_interval(value)
    return value


def group_commit_delay(value: str) -> str:
    policies.group_commit_delay(value)
    return value


def index_checkpoint(value: str) -> str:
    policies.index_checkpoint(value)
    return value


def reader_threads(value: str) -> int:
    return policies.reader_threads(value)


def _packer(path: str) -> Any:
    """The object that `packer` names: module.name or module:expression."""
    module, colon, expression = path.partition(':')
    if colon:
        # As for <filestorage>: the expression is the operator's own.
        return eval(expression, vars(importlib.import_module(module)))
    module, _, name = path.rpartition('.')
    return getattr(importlib.import_module(module), name)


class FsyncStorage(BaseConfig):

    OWN_KEYS = ('durability', 'sync_interval', 'group_commit_delay',
                'checksums', 'index_checkpoint', 'reader_threads')
    STOCK_KEYS = ('create', 'read_only', 'quota', 'blob_dir', 'pack_gc',
                  'pack_keep_old')

    def open(self) -> storage.FsyncStorage:
        config = self.config
        options = {
            key: getattr(config, key)
            for key in self.OWN_KEYS + self.STOCK_KEYS
            if getattr(config, key) is not None
        }
        if config.packer:
            options['packer'] = _packer(config.packer)
        return storage.FsyncStorage(config.path, **options)
