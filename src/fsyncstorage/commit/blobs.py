"""Blob files that are durable before their transaction counts (I11).

`Stored` has the blob files of one transaction, until it is appended.  When a
blob is stored, its file is moved into the blob file system, under a temporary
name.  The vote makes the directory that the file will be in, and makes the
content durable.  The file gets its real name, which contains the tid, just
before the transaction is written.  An abort removes the transaction's own
files, and no others.  Where a log has the contents, too (commit.replica),
`Stored` knows what the log has of them.

`Placed` has the keys of blobs that have their names.  A leader makes these
names durable before it writes the status of the transaction.  Under the policy
`none`, which promises nothing, the contents are also made durable only then.

No file is held open: each is opened for its sync, one at a time.
"""

import contextlib
import errno
import logging
import os
import tempfile
import time
import typing
from collections.abc import Iterator

import ZODB.blob
from ZODB.utils import cp
from ZODB.utils import z64

from .. import datafile

logger = logging.getLogger(__name__)

# Files in `blobs/tmp` have names that begin with this, from when a server
# begins to receive them until they get their real names.
UPLOAD = 'upload-'

# The key of a blob file is its oid and its serial.
OID = 8
KEY = 16
# At most this many files are synced before the directories that name them: so
# the memory of a sync is bounded, however many blobs there are.
AT_ONCE = 500
#: Errors of an opening that can go away, perhaps when the operator acts; and
#: seconds between two attempts.
PASSING = errno.EMFILE, errno.ENFILE, errno.ENOMEM
PAUSE = 0.02


class InLog(typing.Protocol):
    """What a log has of the blobs of a transaction."""

    def drop(self) -> None:
        """No transaction will name them."""


class Stored:

    def __init__(self, helper: ZODB.blob.FilesystemHelper,
                 durable_names: set[str]) -> None:
        self._helper = helper
        self._temporary = os.path.join(
            helper.base_dir, os.path.basename(helper.temp_dir))
        self._durable_names = durable_names
        #: (oid, serial or None: that of the transaction) -> path
        self._files: dict[tuple[bytes, bytes | None], str] = {}
        self._prepared: set[str] = set()
        self._named: list[str] = []
        #: What a log has of them; None: nothing.
        self.in_log: InLog | None = None

    def __bool__(self) -> bool:
        return bool(self._files)

    def files(self) -> dict[str, tuple[bytes, bytes | None]]:
        """path -> oid and serial; None: that of the transaction."""
        return {path: key for key, path in self._files.items()}

    def take(self, source: str, oid: bytes,
             serial: bytes | None = None) -> None:
        """Take the file over: from now on it belongs to the storage."""
        earlier = self._files.pop((oid, serial), None)
        if earlier is not None:
            datafile.remove_if_there(earlier)
        target = tempfile.mktemp(prefix=UPLOAD, dir=self._temporary)
        self._files[oid, serial] = target
        try:
            datafile.disk.replace(source, target)
        except OSError:  # from another file system: copy it
            with open(source, 'rb') as from_file:
                with datafile.open_new(target) as to_file:
                    cp(from_file, to_file)
            os.remove(source)
            ZODB.blob.copied('Copied blob file %r to %r.', source, target)
        ZODB.blob.set_not_writable(target)
        # If the file cannot be opened, fail now, not at its sync.
        datafile.open_existing(target, read_only=True).close()

    def prepare(self, durable: bool) -> None:
        """Do everything that could fail for lack of room.

        `durable`: also sync the files."""
        for (oid, _), path in self._files.items():
            if path not in self._prepared:
                self._make_directory_of(
                    self._helper.getBlobFilename(oid, z64))
                if durable:
                    datafile.sync_path(path)
                self._prepared.add(path)

    def name(self, tid: bytes) -> bytearray:
        """Give the files their names; return their keys."""
        keys = bytearray()
        for (oid, serial), path in self._files.items():
            serial = serial or tid
            target = self._helper.getBlobFilename(oid, serial)
            # A pack may have removed the empty directory.
            self._make_directory_of(target)
            self._named.append(target)
            datafile.disk.replace(path, target)
            keys += oid + serial
        return keys

    def _make_directory_of(self, path: str) -> None:
        # (A pack may have removed a directory whose name was durable.)
        datafile.make_directories(
            os.path.dirname(path), self._durable_names.discard)

    def leave_log(self) -> None:
        """Give back the room that they have in a log."""
        if self.in_log is not None:
            self.in_log.drop()
            self.in_log = None

    def take_back(self) -> None:
        """Remove the files: all that can be removed, even if one cannot."""
        with contextlib.ExitStack() as files:
            files.callback(self.leave_log)
            for path in *self._files.values(), *self._named:
                files.callback(datafile.remove_if_there, path)


def uploads(directory: str) -> list[str]:
    """The files there that a killed process left, or that one still uses."""
    with os.scandir(directory) as entries:
        return [entry.path for entry in entries
                if entry.name.startswith(UPLOAD)
                and entry.is_file(follow_symlinks=False)]


class Placed:

    def __init__(self, helper: ZODB.blob.FilesystemHelper,
                 durable_names: set[str],
                 keys: bytes = b'', names_only: bool = False,
                 removable: bool = False) -> None:
        """`names_only`: the contents are durable already.

        `removable`: the transactions count already, so a file that is missing
        at the sync was removed, for example by a pack."""
        self._gone: type[OSError] | tuple[()] = (
            FileNotFoundError if removable else ())
        self._names_only = names_only
        self._path = helper.getBlobFilename
        self._base = helper.base_dir.rstrip(os.sep)
        #: Directories whose names are known to be durable; shared by all.
        self._durable_names = durable_names
        self._keys = bytearray(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, keys: bytes | bytearray) -> None:
        """Add the blobs of a transaction."""
        self._keys += keys

    def add_if_there(self, oid: bytes, serial: bytes) -> None:
        """Add the blob of an earlier process, if this object has a blob."""
        if os.path.exists(self._path(oid, serial)):
            self._keys += oid + serial

    def sync(self) -> None:
        """Make the files and their names durable, and forget them.

        Blobs that are added during the call stay for the next one.
        """
        left = len(self._keys)
        while left:
            keys = bytes(self._keys[:min(left, AT_ONCE * KEY)])
            self._sync(list(self._paths(keys)))
            del self._keys[:len(keys)]
            left -= len(keys)

    def _sync(self, paths: list[str]) -> None:
        directories: set[str] = set()
        for path in paths:
            if not self._names_only:
                try:
                    datafile.sync_path(path, _opened)
                except self._gone:
                    continue
            directories.update(self._names_to_sync(path))
        # Noted before the syncs: if a directory is removed and made anew
        # during them, `Stored` discards it.
        noted = directories - {os.path.dirname(path) for path in paths}
        self._durable_names |= noted
        try:
            self._sync_directories(directories)
        except BaseException:
            self._durable_names -= noted
            raise

    def _sync_directories(self, directories: set[str]) -> None:
        for path in sorted(directories, reverse=True):  # inner ones first
            try:
                sync_directory(path)
            except self._gone:
                continue

    def _paths(self, keys: bytes) -> Iterator[str]:
        for start in range(0, len(keys), KEY):
            key = bytes(keys[start:start + KEY])
            yield self._path(key[:OID], key[OID:])

    def _names_to_sync(self, path: str) -> Iterator[str]:
        """The directory that names the file, and those above it, up to one
        whose name is known to be durable.

        Only the directories above are remembered as durable, which are few.
        There are as many directories of one object as there are blobs.
        """
        directory = os.path.dirname(path)
        yield directory
        while directory != self._base:
            directory = os.path.dirname(directory)
            yield directory
            if directory in self._durable_names:
                break


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    datafile.disk.sync_directory(path, _opened)


def _opened(path: str, flags: int) -> int:
    """Open what is to be synced, however long that takes.

    Its transaction is in the data file already, with others behind it: so it
    can no longer fail alone.  But a process that has no descriptor left must
    not stop writing either, because no sync has failed (I7).
    """
    is_said = False
    while True:
        try:
            return datafile.disk.open(path, flags)
        except OSError as error:
            if error.errno not in PASSING:
                raise
            if not is_said:
                is_said = True
                logger.error(
                    'a sync cannot open its file (%s): it tries again until a'
                    ' descriptor is free, and commits wait for it', error)
            time.sleep(PAUSE)


def prepare(base: str) -> str:
    """Make a blob directory whose layout survives a power cut.

    Stock never syncs the marker of the layout, so it could be empty after a
    power cut.  Therefore it is written here, before stock looks for it, and
    made durable before there are blobs.  Return the name of the layout.
    """
    base = os.path.abspath(base)
    datafile.make_directories(base, _sync_name)
    layout = layout_of(base)
    marker = os.path.join(base, ZODB.blob.LAYOUT_MARKER)
    if _said_by(marker) != layout:
        # A torn marker is overwritten.  If it were removed first, and writing
        # a new one failed, the next opening would take all blobs for `lawn`.
        with datafile.DataFile(
                marker, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW) as file:
            file.write(layout.encode())
            file.truncate()
            file.sync()
    datafile.disk.sync_directory(base)
    _sync_name(base)
    return layout


def _sync_name(path: str) -> None:
    datafile.disk.sync_directory(os.path.dirname(path))


# A blob directory without blobs may contain this, and hidden names.
NOT_BLOBS = 'tmp'


def layout_of(base: str) -> str:
    """The layout of a blob directory.  Changes nothing.

    The marker names the layout.  If there is no marker, or a power cut has
    emptied it, the content of the directory shows the layout.
    """
    marker = os.path.join(base, ZODB.blob.LAYOUT_MARKER)
    said = _said_by(marker)
    if said is not None and said in ZODB.blob.LAYOUTS:
        return said
    if said and not any(
            layout.startswith(said) for layout in ZODB.blob.LAYOUTS):
        raise ValueError(
            f'{marker} says {said!r}, and there is no such layout of blob'
            f' directories (only {" and ".join(ZODB.blob.LAYOUTS)})')
    return _layout_by_content(base, torn=said is not None)


def _said_by(marker: str) -> str | None:
    """The content of the marker; None if there is no marker."""
    try:
        with open(marker, 'rb') as file:
            said = file.read(99)
    except FileNotFoundError:
        return None
    return said.strip(b'\0 \t\r\n').decode('latin-1')


def _layout_by_content(base: str, torn: bool) -> str:
    """`lawn` if there are blobs and no marker, as in stock.

    If the marker is torn, the files must show the layout.
    """
    try:
        names = [name for name in os.listdir(base)
                 if name != NOT_BLOBS and not name.startswith('.')]
    except FileNotFoundError:
        names = []
    if not names:
        return 'bushy'
    if not torn:
        return 'lawn'
    for name in names:
        path = os.path.join(base, name)
        # Other directories may be unreadable, like lost+found.
        if name.startswith('0x') and os.path.isdir(path) and any(
                inner.endswith('.blob') for inner in os.listdir(path)):
            return 'lawn'  # the files are one level below
    return 'bushy'
