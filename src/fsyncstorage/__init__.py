"""A FileStorage for ZODB with tunable durability.

The rooms (packages), from the top down.  Imports point down only;
tests/test_rooms.py lists which room may import which, and docs/internals has
the whole story.

    timing/     the driver `fsync-time`, on top of everything else
    config      the section <fsyncstorage>
    fsyncpack/  `fsync-pack`: packs a file, or asks a server to
    fsynctop/   `fsync-top`: which clients of a server do what
    fsyncquorum/ `fsync-quorum`: looks after the nodes of a quorum
    backup/     ships a file that is in use to a store, and restores it
    check/      `fsync-check`: what is damaged, and what can be saved;
                check/info/ is `fsync-info`: what takes the space
    server/     the ZEO server, `fsync-runzeo`
    metrics/    figures for Prometheus, probes, and a live page
    storage/    FsyncStorage: opening, recovery, transactions
    pack/       a pack: what it copies, and how the new file replaces the old
    scrub/      reads and verifies the whole file while it is in use
    processes/  child processes of our own, which give way to their parent
    quorum/     a log that a majority keeps, and nodes that write or follow it
    commit/     from the vote to the disk: policies, locks, syncs, publishing
    client/     the ZEO client; client/blobs/ is its blob cache
    local/      what other processes on the server's machine read themselves
    core/       what a read does most often, in C
    wire/       the one protocol between our client and our server, for both
                ends
    format/     what the bytes of a Data.fs mean, and look-ups in it; no locks,
                and no threads
    files/      blobs for browsers; it uses ZODB, and no other room
    datafile    every write, sync and rename of the storage's files
    allocation  disk blocks that are allocated behind the end of a file
    positions   where each object is in a file, by oid
    histogram   counts durations, in fixed memory
    forks       what a forked child must not use
    errors      the exceptions, mostly for a disk that fails
    version     the version of this package

The storage is imported on first use.  So a client, or a process that packs or
reads through a file, starts without it.
"""

import typing

if typing.TYPE_CHECKING:
    from .commit.asking import durability
    from .storage import AsyncFinish
    from .storage import FsyncStorage

__all__ = ['AsyncFinish', 'FsyncStorage', 'durability']


def __getattr__(name: str) -> typing.Any:
    if name == '__version__':
        from .version import own_version
        return own_version()
    if name not in __all__:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    if name == 'durability':
        from .commit.asking import durability
        globals()[name] = durability
    else:
        from . import storage
        globals()[name] = getattr(storage, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
