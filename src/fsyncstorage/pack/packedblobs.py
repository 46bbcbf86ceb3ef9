"""The blob files that a pack leaves out: removed, or moved to `blobs.old`.

The packer lists them (`GoneBlobs`) in `.removed` in the blob directory, a line
for each, in hexadecimal: an oid and a tid.  (Stock's packer also lists an oid
alone, if nothing before the pack time is left of the object.)  They are taken
away when the packed data file has its name durably.

A crash may happen before that.  A start that finds a list must know whether it
is the list of the pack that has made the data file: the blobs in any other
list may be needed.  So the size and the fingerprint of the new file are
written at the end of the list (`say_whose`) before the file gets its name.  A
start then finishes what the crash has interrupted (`take_up`).

With `pack_keep_old`, `blobs.old` has the blobs of `Data.fs.old`: those that
were taken away, and hard links to those that stay.  Without hard links,
`blobs.old` has only those that were taken away: the others stay where they
were, and copies of them would need room for all blobs twice.  The `blobs.old`
of the last pack is removed only now: its blobs belong to the `Data.fs.old`
that was replaced just now.

A node that follows makes no such links: it has the log to follow meanwhile.

A start that finishes what a crash has interrupted cannot know whether
`blobs.old` is still that of the last pack.  It removes nothing there: files
that are not needed stay in it until the next pack.
"""

import binascii
import contextlib
import dataclasses
import errno
import io
import logging
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

from ZODB.blob import LAYOUT_MARKER
from ZODB.blob import FilesystemHelper

from .. import datafile
from ..format import index
from ..format import scan
from ..format.classes import FRONT_OF_BLOB
from ..format.classes import is_of_blob
from ..format.scan import RECORD_HEADER
from ..format.scan import Chains
from ..format.window import Window
from .output import Output

logger = logging.getLogger(__name__)

LIST = '.removed'

#: The line with the size and the fingerprint of a file begins with this, and
#: no line of a blob does.
_MARK = b'#'
_WHOSE = re.compile(rb'^# (\d{1,19}) (\d{1,10})\n\Z', re.MULTILINE)
_LONGEST_WHOSE = 40


@dataclasses.dataclass(frozen=True)
class BlobDirectory:
    """What is needed of a storage here, where none is open."""

    blob_dir: str
    fshelper: FilesystemHelper
    pack_keep_old: bool
    #: No lock is needed: the thread that replaces the file also makes the
    #: directories.
    _lock: contextlib.AbstractContextManager[object] = contextlib.nullcontext()


class GoneBlobs:
    """Lists the blobs that are not kept.

    A transaction can have several records of one blob, but only one file for
    it.
    """

    def __init__(self, file: datafile.DataFile) -> None:
        self._out = Output(file)

    def flush(self) -> None:
        self._out.flush()

    def add(self, found: scan.Transaction, kept: set[bytes], window: Window,
            chains: Chains) -> None:
        """Add a transaction; `kept` are the oids of its records that are kept.
        """
        done = set(kept)
        ahead = window.for_records_of(found.end - found.position)
        for record in found.records:
            if record.oid in done:
                continue
            source = chains.source(record)
            if _is_of_blob(source, ahead if source is record else None,
                           window):
                done.add(record.oid)
                self._out.append(
                    binascii.hexlify(record.oid + record.tid) + b'\n')


def _is_of_blob(source: scan.Record, ahead: Window | None,
                window: Window) -> bool:
    """`ahead` covers records in their order."""
    size = min(source.length, FRONT_OF_BLOB)
    start = source.position + RECORD_HEADER
    if ahead is not None and size:
        ahead.cover(start, size)
    return bool(size) and is_of_blob((ahead or window).read(start, size))


def say_whose(listed: datafile.DataFile, new: datafile.DataFile,
              end: int) -> None:
    """Note that the list is complete, and which file its pack has made."""
    listed.write_at(
        b'# %d %d\n' % (end, index.fingerprint(new, end)), listed.size())
    listed.sync()
    datafile.disk.sync_directory(os.path.dirname(listed.name))


def take_up(storage: Any, path: str, links: bool = True) -> None:
    """At a start, take away the blobs that a crash has left in a list.

    The data file already has the name that it keeps.  The list of any other
    pack is removed.
    """
    name = os.path.join(storage.blob_dir, LIST)
    with _errors_logged(path):
        if os.path.isfile(name) and not os.path.islink(name):
            with open(name, 'rb') as listed:
                if _is_of(path, listed):
                    logger.warning(
                        '%s: a crash had interrupted a pack: the blobs that it'
                        ' has left out are taken away now', path)
                    _take_away(storage, listed, links, is_resumed=True)
        datafile.remove_if_there(name)


@contextlib.contextmanager
def _errors_logged(path: str) -> Iterator[None]:
    """A context that raises no error: nobody needs these blobs."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a damaged line
        logger.error(
            '%s: blobs that a pack has left out could not be taken away (%s):'
            ' the next start tries it again; fsync-check --blobs lists those'
            ' that are left', path, error)


def _is_of(path: str, listed: io.BufferedReader) -> bool:
    """Has the pack that made this list also made the data file?"""
    listed.seek(max(0, os.fstat(listed.fileno()).st_size - _LONGEST_WHOSE))
    whose = _WHOSE.search(listed.read())
    listed.seek(0)
    if whose is None:
        return False
    end = int(whose[1])
    with datafile.open_existing(path, read_only=True) as file:
        return (file.size() >= end
                and index.fingerprint(file, end) == int(whose[2]))


def take_away(storage: Any, path: str, listed: datafile.DataFile,
              links: bool = True) -> None:
    """Take away the listed blobs: the packed file has its name durably.

    `links`: those that stay are linked into `blobs.old`, if that is kept.
    If the storage is closed in the meantime, the name of the list may belong
    to the list of another pack; `listed` is still that of this one.
    """
    with _errors_logged(path), listed.reader() as lines:
        _take_away(storage, lines, links)


def _take_away(storage: Any, listed: io.BufferedReader, links: bool,
               is_resumed: bool = False) -> None:
    """With `is_resumed`, it goes on where a crash has interrupted it."""
    blob_dir = storage.blob_dir
    old = blob_dir + '.old'
    if os.path.lexists(old) and not is_resumed:
        _remove(old)
    if storage.pack_keep_old:
        datafile.make_directories(old)
        _copy_marker(blob_dir, old)
    changed = set()
    for path in paths(storage, listed):
        if storage.pack_keep_old:
            _move(path, old + path[len(blob_dir):])
        else:
            _remove(path)
        changed.add(_remove_empty_directories(storage, os.path.dirname(path)))
    if storage.pack_keep_old and links:
        _link_what_stays(blob_dir, old)
    # A file that a power cut brings back would stay without the list.
    for each in filter(os.path.isdir, changed):
        datafile.disk.sync_directory(each)
    datafile.remove_if_it_is(os.path.join(blob_dir, LIST), listed)


def paths(storage: Any, listed: io.BufferedReader) -> Iterator[str]:
    """The paths of the listed files and directories that exist."""
    for line in listed:
        if line.startswith(_MARK):
            break
        name = binascii.unhexlify(line.strip())
        oid, tid = name[:8], name[8:]
        path = (storage.fshelper.getBlobFilename(oid, tid) if tid
                else storage.fshelper.getPathForOID(oid))
        if os.path.exists(path):
            yield path


def _remove(path: str) -> None:
    """A file, a link, or a directory with all that is in it."""
    if os.path.isdir(path) and not os.path.islink(path):
        for name in os.listdir(path):
            _remove(os.path.join(path, name))
        datafile.disk.remove_directory(path)
    else:
        datafile.disk.remove(path)


def _move(source: str, target: str) -> None:
    datafile.make_directories(os.path.dirname(target))
    try:
        datafile.disk.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # The blob directory is a file system of its own.  A copy that a crash
        # has left cannot be overwritten: blobs are read-only.
        datafile.remove_if_there(target)
        shutil.move(source, target)


def _remove_empty_directories(storage: Any, path: str) -> str:
    """Remove this directory and its parents, as long as they are empty;
    return the one that stays."""
    while len(path) > len(storage.blob_dir):
        try:
            with storage._lock:  # a commit makes directories under this lock
                datafile.disk.remove_directory(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            break
        path = os.path.dirname(path)
    return path


def _copy_marker(blob_dir: str, old: str) -> None:
    with open(os.path.join(blob_dir, LAYOUT_MARKER), 'rb') as marker:
        with datafile.open_new(os.path.join(old, LAYOUT_MARKER)) as copy:
            copy.write(marker.read())


def _link_what_stays(blob_dir: str, old: str) -> None:
    for parent, _, files in os.walk(blob_dir):
        for name in files:
            if not name.endswith('.blob'):
                continue
            source = os.path.join(parent, name)
            target = old + source[len(blob_dir):]
            datafile.make_directories(os.path.dirname(target))
            try:
                linked = datafile.link_if_possible(source, target)
            except FileNotFoundError:
                continue  # of a transaction that was aborted just now
            except FileExistsError:
                continue  # it was linked before a crash
            if not linked:
                logger.warning(
                    '%s has only the blobs that the pack took away: without'
                    ' hard links the others are in %s alone', old, blob_dir)
                return
