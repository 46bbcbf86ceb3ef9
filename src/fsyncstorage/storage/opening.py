"""What is in the file, its index and its blob directory when it is opened.

1. Refuse a path that cannot be a data file.  Refuse to make a new file in
   place of a lost one, and to write without the log that a file belongs to
   (commit.replica).
2. Take the lock file; open the data file, or make it, and lock it, too: a data
   file with a second name has a second lock file.
3. Read the index, if it can be trusted, and the data behind it; cut off the
   torn tail of a crash (recovery).

Left to others: what to do with a tail (recovery), leftovers of a crash
(leftovers), the format of an index (index), the layout of a blob directory
(blobs), and the services of a storage that is open (storage).
"""

import contextlib
import errno
import logging
import os
import random
import typing
from collections.abc import Generator

import zc.lockfile
import ZODB.blob
from persistent.TimeStamp import TimeStamp
from ZODB._compat import FILESTORAGE_MAGIC
from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.FileStorage.FileStorage import FileStorageFormatError
from ZODB.FileStorage.FileStorage import read_index
from ZODB.fsIndex import fsIndex
from ZODB.utils import maxtid
from ZODB.utils import newTid
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from .. import datafile
from ..commit import blobs
from ..commit.policies import Policy
from ..commit.replica import SUFFIX as SUFFIX_OF_A_NODE
from ..commit.replica import Replica
from ..format import headers
from ..format import index
from ..format import scan
from ..format import seal
from ..format.headers import headers_before
from ..format.view import View
from ..format.view import ViewIterator
from ..format.window import Window
from ..scrub.notes import SUFFIX
from . import leftovers
from . import recovery

logger = logging.getLogger(__name__)
# Some lines are logged where FileStorage logs them: monitoring may expect it.
stock_logger = logging.getLogger('ZODB.FileStorage')

# If the last tid is more seconds than this in the future, that is critical.
FAR_FUTURE = 30 * 60


def checked(path: str | os.PathLike[str], read_only: bool, create: bool,
            stop: bytes | None) -> str:
    """The path, if the arguments fit together."""
    path = os.fspath(path)
    if read_only and create:
        raise ValueError("can't create a read-only file")
    if stop is not None and not read_only:
        raise ValueError('time-travel only supported in read-only mode')
    if os.path.isdir(path):
        raise IsADirectoryError(
            f'{path} is a directory; the path of a data file is'
            ' needed, like Data.fs')
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f'{path} is not a regular file')  # a pipe would hang
    return path


def check_replica(policy: Policy, replica: Replica | None, read_only: bool,
                  create: bool, checksums: bool) -> None:
    if replica is None:
        if policy.replicated and not read_only:
            raise ValueError(
                f'durability {policy.name} needs the log of a cluster, which'
                ' a section <quorum> of the configuration names')
    elif not policy.replicated or read_only:
        raise ValueError('a replica is for durability quorum, and for writing')
    elif create:
        raise ValueError(
            'another file cannot be created in place of one that belongs to a'
            ' log')
    elif not checksums:
        raise ValueError(
            f'durability {policy.name} needs checksums: they show when a log'
            ' has lost what was acknowledged')


def refuse_past_a_log(path: str, replica: Replica | None,
                      read_only: bool) -> None:
    """Refuse to write to a file of a log without its log: what is appended so
    would be cut off when the file is used with its log again."""
    if replica is None and not read_only and any(
            os.path.lexists(name + SUFFIX_OF_A_NODE)
            for name in (path, os.path.realpath(path))):
        raise FileStorageError(
            f'{path} is written under durability quorum only: beside it is a'
            f' file {SUFFIX_OF_A_NODE}, as it is one copy of what a log has,'
            ' and what another policy appends would be cut off later. Nothing'
            ' was changed. To go on without the log, for good, and without the'
            ' other copies, remove that file')


def prepare(path: str, create: bool, read_only: bool,
            blob_dir: str | None) -> None:
    """The steps before the lock is taken."""
    if not read_only:
        leftovers.refuse_second_names(path)
    if not create:
        recovery.refuse_lost_file(path, blob_dir)


def holder(path: str) -> str:
    """Which process has the locked file."""
    try:
        with open(path + '.lock') as lock_file:
            return f'process {int(lock_file.read())}'
    except (OSError, ValueError):
        return 'another process'


ONE_WRITER = ('Only one may write: stop it, connect to it over ZEO, or open'
              ' the file read-only')


def locked(path: str) -> str:
    """A message that says which process has the file."""
    return f'{path} is open for writing in {holder(path)}. {ONE_WRITER}'


def lock_name(path: str) -> zc.lockfile.LockFile:
    """Take the lock file beside this data file."""
    try:
        with _saying_who_has(path):
            return zc.lockfile.LockFile(path + '.lock')
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT, 'No such directory',
            os.path.dirname(os.path.abspath(path))) from None


@contextlib.contextmanager
def _saying_who_has(path: str) -> Generator[None, None, None]:
    try:
        yield
    except zc.lockfile.LockError as error:
        raise zc.lockfile.LockError(locked(path)) from error


class InUse(zc.lockfile.LockError):
    """The file is open for writing under another name."""


def lock(file: datafile.DataFile) -> None:
    """Lock the data file itself, after its lock file was taken."""
    try:
        file.lock()
    except BlockingIOError:
        raise InUse(
            f'{file.name} is open for writing elsewhere, under another name'
            f' (a link, or another mount). {ONE_WRITER}') from None


def close_without_unlocking(lock_file: zc.lockfile.LockFile | None) -> None:
    """Close the lock file only.  The lock belongs to an open file that the
    parent shares, so `lock_file.close` would free the parent's lock."""
    if lock_file is not None and lock_file._fp is not None:
        lock_file._fp.close()
        lock_file._fp = None


# The data file

def open_file(path: str, create: bool, read_only: bool) -> datafile.DataFile:
    """Open the data file; make it if there is none."""
    if create and os.path.lexists(path):
        datafile.disk.remove(path)
    if create:
        datafile.remove_if_there(path + SUFFIX)  # of the old file
    # Never truncate: the data of an existing file are needed.
    file = datafile.DataFile(
        path, os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT)
    file.name = os.path.abspath(path)
    return file


def check_magic(file: datafile.DataFile, read_only: bool) -> None:
    """Refuse a file that is not a data file; write the magic of a new one."""
    magic = file.read(len(FILESTORAGE_MAGIC) + 1)
    if recovery.is_torn_creation(magic):
        if not read_only:
            file.write_at(FILESTORAGE_MAGIC, 0)
    elif not magic.startswith(FILESTORAGE_MAGIC):
        raise FileStorageFormatError(
            f'{file.name} is not a FileStorage data file: it does not begin'
            ' with its magic bytes; nothing was changed')


class Content(typing.NamedTuple):
    """What is in the file."""

    index: fsIndex
    end: int
    tid: bytes
    #: The index file that was used is complete up to here.
    known_to: int

    @property
    def last_oid(self) -> bytes:
        try:
            return self.index.maxKey()
        except ValueError:  # the index is empty
            return z64


#: A node gives oids to clients, and keeps no record of them.  Clients of ours
#: may use them in commits to the next node: so each epoch has this many oids
#: of its own.
OIDS_OF_AN_EPOCH = 1 << 36
#: The file may have oids beyond those of the epoch, from an earlier log that
#: had more epochs.  Then new oids begin at a random distance in this range
#: behind them: the node before may have begun from the same last oid, and may
#: have committed none of the oids that it has given.
GIVEN_BY_OTHERS = range(1 << 16, 1 << 20)


class Opened(typing.NamedTuple):
    """A file that is open and locked, for a storage that writes."""

    lock_file: zc.lockfile.LockFile
    file: datafile.DataFile
    content: Content
    #: The epoch of the node that writes.
    epoch: int = 0


def given_before(found: Content, opened: Opened | None) -> bytes:
    """The last oid that may have been given: later ones are new.

    On a node, earlier nodes have given more oids than the file shows, unless
    nothing was committed yet."""
    if opened is None or not found.index:
        return found.last_oid
    beyond = max(opened.epoch * OIDS_OF_AN_EPOCH,
                 u64(found.last_oid) + random.choice(GIVEN_BY_OTHERS))
    return max(found.last_oid, p64(min(beyond, u64(maxtid))))


def open_and_read(path: str, create: bool, read_only: bool,
                  stop: bytes | None, promised: bool
                  ) -> tuple[datafile.DataFile, Content]:
    """Open the file and read it.  Lock it if it is for writing; its lock file
    was taken before."""
    file = open_file(path, create, read_only)
    try:
        if not read_only:
            lock(file)
        check_magic(file, read_only)
        with seal.naming(file.name):
            return file, (
                read(file, create, read_only, promised) if stop is None
                else read_up_to(file, stop))
    except BaseException:
        file.close()
        raise


def read(file: datafile.DataFile, create: bool, read_only: bool,
         promised: bool) -> Content:
    """Read the content, and cut off a torn tail."""
    if create:
        datafile.remove_if_there(file.name + '.index')  # of another database
    known, loaded = trusted_index(file)
    found = recovery.recover(file, known, read_only, promised, loaded)
    if read_only:
        file.limit = found.end  # others may append more
    return Content(*found, known.end)


def read_up_to(file: datafile.DataFile, stop: bytes) -> Content:
    """Read the file as it was before this tid, with stock's function."""
    found = fsIndex()
    end, _, tid = read_index(file, file.name, found, {}, stop, read_only=1)
    headers.refuse_unknown_last_seal(Window.of_file(file.fileno()), end)
    return Content(found, end, tid, scan.FIRST)


def warn_of_the_future(path: str, tid: bytes) -> None:
    """Warn if the clock is wrong now, or was when the file was written."""
    now = TimeStamp(newTid(None))
    if TimeStamp(tid) > now:
        seconds = TimeStamp(tid).timeTime() - now.timeTime()
        stock_logger.log(
            logging.CRITICAL if seconds > FAR_FUTURE else logging.WARNING,
            '%s Database records %d seconds in the future', path, seconds)


# The index

def trusted_index(file: datafile.DataFile
                  ) -> tuple[recovery.Recovered, index.Loaded | None]:
    """The content of the index file, if it can be trusted; and the index, if
    it is sound and this package wrote it."""
    loaded = load_index(file.name)
    if loaded is None:
        return nothing_known(), None
    if loaded.fingerprint is None:
        return trusted(file, loaded), None
    recovery.refuse_shortened(file, loaded)
    return trusted(file, loaded), loaded


def nothing_known() -> recovery.Recovered:
    """No index is known: the whole file must be read."""
    return recovery.Recovered(fsIndex(), scan.FIRST, z64)


def load_index(data_path: str) -> index.Loaded | None:
    """The index beside a data file; None if there is no sound one."""
    try:
        return index.load(data_path + '.index')
    except FileNotFoundError:
        return None
    except index.Damaged as reason:
        logger.warning('%s; all of the data will be scanned', reason)
        return None


def trusted(file: datafile.DataFile,
            loaded: index.Loaded) -> recovery.Recovered:
    """The content of an index, if it belongs to this file; else nothing.

    UnknownVersion if the file before its end is that of another release.
    """
    by_whom = (_trusted_by_stock if loaded.fingerprint is None
               else _trusted_by_us)
    found = by_whom(file, loaded) or nothing_known()
    headers.refuse_unknown_last_seal(
        Window.of_file(file.fileno()), found.end)
    return found


def _trusted_by_us(file: datafile.DataFile,
                   loaded: index.Loaded) -> recovery.Recovered | None:
    """Stricter than for an index of stock, where only the end is checked."""
    if (loaded.position > file.size()
            or loaded.fingerprint != index.fingerprint(
                file, loaded.position)
            or loaded.position == scan.FIRST):
        return None
    last = next(headers_before(
        Window.of_file(file.fileno()), loaded.position), None)
    return last and recovery.Recovered(
        loaded.index, loaded.position, last.tid)


def _trusted_by_stock(file: datafile.DataFile,
                      loaded: index.Loaded) -> recovery.Recovered | None:
    """The content of an index without a checksum, if it agrees with the last
    transaction that changed anything: then stock would trust it, too."""
    tid = _last_tid_if_known(Window.of_file(file.fileno()), loaded)
    if tid is None:
        if loaded.position > scan.FIRST:
            stock_logger.warning('Ignoring index for %s', file.name)
        return None
    return recovery.Recovered(loaded.index, loaded.position, tid)


def _last_tid_if_known(window: Window, loaded: index.Loaded) -> bytes | None:
    """The last tid; None if the index contradicts the file."""
    end, tid = loaded.position, None
    while transaction := scan.transaction_before(window, end):
        tid = tid or transaction.tid
        if transaction.records and transaction.status != b'u':
            last = {each.oid: each.position for each in transaction.records}
            known = all(loaded.index.get(oid, 0) == position
                        for oid, position in last.items())
            return tid if known else None
        end = transaction.position
    return None


# Blobs

def blob_helper(path: str, create: bool,
                read_only: bool) -> ZODB.blob.FilesystemHelper:
    """Stock's helper, which computes the paths of blob files."""
    if read_only:  # write nothing there
        return ZODB.blob.FilesystemHelper(path, blobs.layout_of(path))
    if create and os.path.exists(path):
        ZODB.blob.remove_committed_dir(path)
    helper = ZODB.blob.FilesystemHelper(path, blobs.prepare(path))
    helper.create()
    return helper


def sync_unsynced_blobs(unsynced: blobs.Placed, view: View,
                        position: int) -> None:
    """Sync the blobs of transactions from this position on.

    If the process before this one was killed, without a power cut, their
    files are there.
    """
    for transaction in ViewIterator(view, position=position):
        for record in transaction:
            unsynced.add_if_there(record.oid, record.tid)
    unsynced.sync()
