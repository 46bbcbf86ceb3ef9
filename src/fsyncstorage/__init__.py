"""A FileStorage for ZODB with tunable durability."""

from .storage import AsyncFinish
from .storage import FsyncStorage

__all__ = ['AsyncFinish', 'FsyncStorage']
