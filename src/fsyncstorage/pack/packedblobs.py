"""The blob files that a pack leaves out: removed, or moved to `blobs.old`.

The packer lists them in `.removed` in the blob directory, a line for each, in
hexadecimal: an oid and a tid.  (Stock's packer also lists an oid alone, if
nothing before the pack time is left of the object.)  They are taken away when
the packed data file has its name durably.

With `pack_keep_old`, `blobs.old` has the blobs of `Data.fs.old`: those that
were taken away, and hard links to those that stay.  Without hard links it has
only the first: the others stay where they were, and copying them would need
room for all blobs twice.  The `blobs.old` of the last pack is removed now, not
earlier: its blobs belong to the `Data.fs.old` that was replaced just now.
"""

import binascii
import errno
import io
import logging
import os
import shutil
from collections.abc import Iterator
from typing import Any

from ZODB.blob import LAYOUT_MARKER

from .. import datafile

logger = logging.getLogger(__name__)

LIST = '.removed'


def take_away(storage: Any, listed: io.BufferedReader) -> None:
    """Take away the listed blobs: the packed file has its name durably.

    The storage may be closed meanwhile: `listed` is still the list of this
    pack, but the file of that name may belong to another pack.
    """
    blob_dir = storage.blob_dir
    old = blob_dir + '.old'
    if os.path.lexists(old):
        _remove(old)
    if storage.pack_keep_old:
        datafile.disk.make_directory(old)
        _copy_marker(blob_dir, old)
    for path in paths(storage, listed):
        if storage.pack_keep_old:
            _move(path, old + path[len(blob_dir):])
        else:
            _remove(path)
        _remove_empty_directories(storage, os.path.dirname(path))
    datafile.remove_if_it_is(os.path.join(blob_dir, LIST), listed)
    if storage.pack_keep_old:
        _link_what_stays(blob_dir, old)


def paths(storage: Any, listed: io.BufferedReader) -> Iterator[str]:
    """The paths of the listed files and directories that exist."""
    for line in listed:
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
        # The blob directory is a file system of its own.
        shutil.move(source, target)


def _remove_empty_directories(storage: Any, path: str) -> None:
    """Remove this one, and those that it is in, while they are empty."""
    while len(path) > len(storage.blob_dir):
        try:
            with storage._lock:  # a commit makes directories under this lock
                datafile.disk.remove_directory(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return
        path = os.path.dirname(path)


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
            if not linked:
                logger.warning(
                    '%s has only the blobs that the pack took away: without'
                    ' hard links the others are in %s alone', old, blob_dir)
                return
