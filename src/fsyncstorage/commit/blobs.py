"""Blob files that are durable before their transaction counts (I11).

`Stored` has the blob files of one transaction, until it is appended.  Each is
moved into the blob file system when it is stored, under a temporary name; the
vote makes its content durable, and the directory that it will be in.  It gets
its real name, which contains the tid, just before the transaction is written;
an abort removes the transaction's own files, and no others.  Where a log has
the contents, too (commit.replica), it keeps what the log knows of them.

`Placed` has the keys of blobs that have their names.  A leader makes these
names durable before it writes the status of the transaction.  With the policy
`none`, which promises nothing, the contents are made durable only then, too.

No file is held open: each is opened for its sync, one at a time (spare).
"""

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import ZODB.blob
from ZODB.utils import cp
from ZODB.utils import z64

from .. import datafile
from .spare import Spare

# The names of files in `blobs/tmp` begin so, while a server receives them, and
# until they get their real names.
UPLOAD = 'upload-'

# A blob file is known by its oid and its serial.
OID = 8
KEY = 16
# Files that are synced before the directories that name them: so the memory of
# a sync is bounded, however many blobs there are.
AT_ONCE = 500


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
        #: What a replica has of them; None: nothing.
        self.replicated: Any = None

    def __bool__(self) -> bool:
        return bool(self._files)

    def files(self) -> dict[str, tuple[bytes, bytes | None]]:
        """path -> oid and serial; None: that of the transaction."""
        return {path: key for key, path in self._files.items()}

    def take(self, source: str, oid: bytes,
             serial: bytes | None = None) -> None:
        """Take the file over: from now on it is ours."""
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
        # A file that cannot be opened fails now, not at its sync.
        datafile.open_existing(target, read_only=True).close()

    def prepare(self, durable: bool) -> None:
        """Do all that could fail for lack of room; `durable`: sync, too."""
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
        # (The name of one that a pack had removed may have been durable.)
        datafile.make_directories(
            os.path.dirname(path), self._durable_names.discard)

    def take_back(self) -> None:
        for path in self._named:
            datafile.remove_if_there(path)
        for path in self._files.values():
            datafile.remove_if_there(path)


def uploads(directory: str) -> list[str]:
    """The files there that a process has left which was killed, or has
    still."""
    with os.scandir(directory) as entries:
        return [entry.path for entry in entries
                if entry.name.startswith(UPLOAD)
                and entry.is_file(follow_symlinks=False)]


class Placed:

    def __init__(self, helper: ZODB.blob.FilesystemHelper,
                 durable_names: set[str],
                 keys: bytes = b'', names_only: bool = False,
                 removable: bool = False) -> None:
        """`names_only`: their contents are durable.

        `removable`: the transactions count already, so that a file which is
        missing at the sync was removed, by a pack for example."""
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
        """Add the blobs of a transaction that was acknowledged before them."""
        self._keys += keys

    def add_if_there(self, oid: bytes, serial: bytes) -> None:
        """Add a blob that others have placed, if this object is a blob."""
        if os.path.exists(self._path(oid, serial)):
            self._keys += oid + serial

    def sync(self, spare: Spare) -> None:
        """Make the files and their names durable, and forget them.

        What is added meanwhile stays for the next call.
        """
        left = len(self._keys)
        while left:
            keys = bytes(self._keys[:min(left, AT_ONCE * KEY)])
            self._sync(list(self._paths(keys)), spare)
            del self._keys[:len(keys)]
            left -= len(keys)

    def _sync(self, paths: list[str], spare: Spare) -> None:
        directories: set[str] = set()
        for path in paths:
            if not self._names_only:
                try:
                    spare.sync_path(path)
                except self._gone:
                    continue
            directories.update(self._names_to_sync(path))
        # Noted before the syncs: `Stored` discards a directory that
        # is removed and made anew meanwhile.
        noted = directories - {os.path.dirname(path) for path in paths}
        self._durable_names |= noted
        try:
            self._sync_directories(directories, spare)
        except BaseException:
            self._durable_names -= noted
            raise

    def _sync_directories(self, directories: set[str], spare: Spare) -> None:
        for path in sorted(directories, reverse=True):  # inner ones first
            try:
                spare.sync_directory(path)
            except self._gone:
                continue

    def _paths(self, keys: bytes) -> Iterator[str]:
        for start in range(0, len(keys), KEY):
            key = bytes(keys[start:start + KEY])
            yield self._path(key[:OID], key[OID:])

    def _names_to_sync(self, path: str) -> Iterator[str]:
        """The directories that name the file, and each other.

        For the directory of one object it is not remembered that its name is
        durable: there are as many as blobs.  The directories above are few.
        """
        directory = os.path.dirname(path)
        yield directory
        while directory != self._base:
            directory = os.path.dirname(directory)
            yield directory
            if directory in self._durable_names:
                break


def prepare(base: str) -> str:
    """Make a blob directory whose layout survives a power cut.

    Stock never syncs the marker: it could be found empty.  So write it before
    stock looks, and make it durable before there are blobs.  Return the name
    of the layout.
    """
    base = os.path.abspath(base)
    datafile.make_directories(base, _sync_name)
    layout = layout_of(base)
    marker = os.path.join(base, ZODB.blob.LAYOUT_MARKER)
    if _said_by(marker) != layout:
        # A torn marker is overwritten: if it were removed first, and the new
        # one failed, the next opening would take all blobs for `lawn`.
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


# What a blob directory without blobs may contain, except for hidden names.
NOT_BLOBS = 'tmp'


def layout_of(base: str) -> str:
    """The layout of a blob directory; changes nothing.

    The marker names it; without a marker, or if a power cut has emptied it,
    the content of the directory shows it.
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
    """What the marker says; None if there is none."""
    try:
        with open(marker, 'rb') as file:
            said = file.read(99)
    except FileNotFoundError:
        return None
    return said.strip(b'\0 \t\r\n').decode('latin-1')


def _layout_by_content(base: str, torn: bool) -> str:
    """`lawn` if there is no marker, as in stock.

    A torn marker only shows that there was one.
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
        # Others may be unreadable, like lost+found.
        if name.startswith('0x') and os.path.isdir(path) and any(
                inner.endswith('.blob') for inner in os.listdir(path)):
            return 'lawn'  # the files are one level below
    return 'bushy'
