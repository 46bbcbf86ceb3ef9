"""A FileStorage for ZODB with tunable durability.

The rooms, from the top down.  Imports point down only; which room may import
which is listed in tests/test_rooms.py, and docs/internals has the whole story.

    timing/     the driver `fsync-time`, on top of everything else
    config      the section <fsyncstorage>
    fsyncpack/  `fsync-pack`: packs a file, or asks a server to
    fsynctop/   `fsync-top`: which clients of a server do what
    fsyncquorum/ `fsync-quorum`: looks after the nodes of a quorum
    check/      `fsync-check`: what is damaged, and what can be saved;
                check/info/ is `fsync-info`: what takes the space
    server/     the ZEO server, `fsync-runzeo`
    metrics/    figures for Prometheus, probes, and a live page
    storage/    FsyncStorage: opening, recovery, transactions
    pack/       a pack: what it copies, and how the new file replaces the old
    scrub/      all of the file, read and verified in turn while it is in use
    processes/  processes of our own, which give way to their parent
    quorum/     a log that a majority keeps, and nodes that write or follow it
    commit/     from the vote to the disk: policies, locks, syncs, publishing
    format/     what the bytes of a Data.fs mean, and look-ups in it; no locks,
                and no threads
    client/     the ZEO client; client/blobs/ is its blob cache
    files/      blobs for browsers; it knows ZODB, and nothing else of this
    wire/       the frames of the channels, for server and client
    datafile    every write, sync and rename of the storage's files
    allocation  room behind the end of a file, which the kernel keeps
    positions   where each object is in a file, by oid
    histogram   how long something took, each time, in fixed memory
    forks       what a forked child must not use
    interrupts/ locks that an interrupt does not leave taken
    errors      what a disk that fails makes of a call
    version     the version of this package

The storage is imported when it is first asked for.  A client, and a process
that packs or reads a file through, start without it.
"""

import typing

if typing.TYPE_CHECKING:
    from .storage import AsyncFinish
    from .storage import FsyncStorage

__all__ = ['AsyncFinish', 'FsyncStorage']


def __getattr__(name: str) -> typing.Any:
    if name not in __all__:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from . import storage
    globals().update({each: getattr(storage, each) for each in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
