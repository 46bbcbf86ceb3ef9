"""The directory of a blob cache: its layout, and which files are in it.

Blobs lie where a stock client looks for them, under its names and with its
layout marker, so that either can take over from the other (not both at once).
All other files lie in a directory of their own, which stock ignores; they are
listed in docs/internals/blobcache.rst.
"""

import contextlib
import os
import secrets
import stat
import time

from ZODB.blob import BLOB_SUFFIX
from ZODB.blob import LAYOUT_MARKER
from ZODB.utils import u64

from .part import GUEST
from .part import Part

LAYOUT = 'zeocache'
#: As stock's.
BUCKETS = 997
OWN = 'fsyncstorage'

#: File systems of other machines, as Linux calls them.
NETWORK = frozenset({
    '9p', 'afs', 'beegfs', 'ceph', 'cifs', 'fuse.glusterfs', 'fuse.s3fs',
    'fuse.sshfs', 'gfs2', 'gpfs', 'lustre', 'ncpfs', 'nfs', 'nfs4', 'ocfs2',
    'smb3', 'smbfs'})

#: As stock: the user that runs the client may read a cached blob.
MODE = 0o400

SECOND = 10**9  # nanoseconds

#: Seconds.  A use that is noted is not noted again for so long.
FRESH = 60

#: Nanoseconds.  A time of use further ahead comes from a wrong clock.
LONGEST_LEASE = 24 * 3600 * SECOND

#: Seconds after which a file that a stock client has left counts as left.
FORGOTTEN = 24 * 3600

#: Seconds after which the system has written a file to the disk.
YOUNG = 600


class BlobCacheLayout:
    """That of stock; to import stock's would import its event loop, too."""

    def oid_to_path(self, oid):
        return str(u64(oid) % BUCKETS)

    def getBlobFilePath(self, oid, tid):
        number, bucket = divmod(u64(oid), BUCKETS)
        return f'{bucket}/{number}.{tid.hex()}{BLOB_SUFFIX}'


class CacheDirectory:

    def __init__(self, path, mode=MODE):
        """`mode` is that of a blob file; its readers may enter the way to it.
        """
        self.path = os.path.abspath(path)
        self.mode = mode
        self.temporary = os.path.join(self.path, 'tmp')
        self._parts = os.path.join(self.path, OWN, 'parts')
        self.total = os.path.join(self.path, OWN, 'total')
        self._layout = BlobCacheLayout()

    def make(self):
        """Make what is missing, or refuse the directory."""
        os.makedirs(self.path, exist_ok=True)
        kind = file_system(self.path)
        if kind in NETWORK:
            raise ValueError(
                f'{self.path} is on a network file system ({kind}), where'
                ' processes cannot rely on file locks. A blob cache belongs'
                ' on a disk of this machine: choose another blob-dir')
        self._mark_layout()
        for path in self.temporary, self._parts:
            os.makedirs(path, exist_ok=True)
        for path in self.path, *self._buckets():
            self._let_pass(path)

    def _let_pass(self, directory):
        """Let users that may read blobs enter this directory."""
        _permit(directory, os.stat(directory), self.mode >> 2 & 0o111)

    def _mark_layout(self):
        marker = os.path.join(self.path, LAYOUT_MARKER)
        try:
            with open(marker) as file:
                layout = file.read().strip()
        except FileNotFoundError:
            layout = ''
        # A power cut can leave an empty marker, and the first servers with
        # blobs did not write one: there, each blob's directory is named 0x...
        if not layout and any(
                name.startswith('0x') for name in os.listdir(self.path)):
            layout = 'lawn'
        if layout not in ('', LAYOUT):
            raise ValueError(
                f'{self.path} holds the blobs of a server (its layout is'
                f' {layout!r}), and a cache would remove them. Choose another'
                ' blob-dir; or, to use the directory together with the'
                ' server, set shared-blob-dir')
        if not layout:
            with open(marker, 'w') as file:
                file.write(LAYOUT)

    # Blobs

    def blob(self, oid, serial):
        """The path of a blob."""
        return f'{self.path}/{self._layout.getBlobFilePath(oid, serial)}'

    def use(self, path, seconds=0):
        """The path of a blob, which is used now and for so many seconds; None
        if it is not there."""
        try:
            found = os.stat(path)
            now = time.time_ns()
            until = now + int(min(seconds * SECOND, LONGEST_LEASE))
            noted = found.st_atime_ns
            if noted > now + LONGEST_LEASE or noted < until - (
                    0 if seconds else FRESH * SECOND):
                os.utime(path, ns=(until, found.st_mtime_ns))
            _permit(path, found, self.mode)
        except FileNotFoundError:
            return None
        except PermissionError:  # another user's file
            pass
        return path

    def give_name(self, path, blob):
        """Make this file the blob of that path."""
        now = time.time_ns()
        os.utime(path, ns=(now, now))
        try:
            os.rename(path, blob)
        except FileNotFoundError:
            bucket = os.path.dirname(blob)
            os.makedirs(bucket, exist_ok=True)
            self._let_pass(bucket)
            os.rename(path, blob)
        # Not before: a part that a dead process has left must be writable.
        with contextlib.suppress(FileNotFoundError):  # it may have left
            os.chmod(blob, self.mode)

    def blobs(self):
        """Yield each blob's path and status; remove what stock clients that
        were killed have left."""
        for bucket in self._buckets():
            with os.scandir(bucket) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        if entry.name.endswith(BLOB_SUFFIX):
                            yield entry.path, entry.stat()
                        elif entry.name != '.lock' and (
                                entry.stat().st_mtime
                                < time.time() - FORGOTTEN):
                            os.remove(entry.path)

    def _buckets(self):
        with os.scandir(self.path) as entries:
            return [entry.path for entry in entries
                    if entry.name.isdigit() and entry.is_dir()]

    def remove_young(self):
        """Remove the blobs that were written shortly before the last of all
        uses: after a power cut, they may be shorter than they were."""
        last = max((found.st_ctime_ns for _, found in self.blobs()), default=0)
        for path, found in self.blobs():
            if found.st_mtime_ns > last - YOUNG * SECOND:
                os.remove(path)

    def stock_was_here(self):
        """Did a stock client put a blob here since our last one did?

        It leaves a file `.lock` where it puts a blob.
        """
        with contextlib.suppress(FileNotFoundError):
            last = os.stat(self.total).st_mtime_ns
            for bucket in self._buckets():
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(f'{bucket}/.lock').st_mtime_ns > last:
                        return True
        return False

    # Our own files

    def open(self, kind, path):
        try:
            return kind(path)
        except FileNotFoundError:  # the whole directory was cleared
            self.make()
            return kind(path)

    def part(self, blob):
        return os.path.join(self._parts, '-'.join(blob.split(os.sep)[-2:]))

    def parts(self):
        """The paths of all parts."""
        return [os.path.join(self._parts, name)
                for name in os.listdir(self._parts)]

    def claim(self, blob, wait=True):
        """The part of a blob that is not there, locked.

        None: the blob is there; or, without waiting, another has the lock.
        """
        while not os.path.exists(blob):
            part = self.open(Part, self.part(blob))
            try:
                if not part.lock(wait):
                    part.close()
                    return None
                # Meanwhile the part may have become the blob, or have gone.
                if part.has_its_name():
                    if not os.path.exists(blob):
                        return part
                    part.remove()
            except BaseException:
                part.close()
                raise
            part.close()
        return None

    def make_guest(self, part):
        """Take the name from a part: it is of this process alone."""
        path = f'{part.path}.{secrets.token_hex(8)}{GUEST}'
        os.rename(part.path, path)
        part.path = path


def _permit(path, found, mode):
    """Add the permissions of `mode` to those that it has."""
    if mode & ~found.st_mode:
        os.chmod(path, stat.S_IMODE(found.st_mode) | mode)


def file_system(path):
    """The type of the file system, as Linux calls it; None if unknown.

    The table of mounts has its name.  `statfs` knows the type, too, but Python
    does not offer it, and its layout differs on each platform.
    """
    device = os.stat(path).st_dev
    wanted = f'{os.major(device)}:{os.minor(device)}'
    with contextlib.suppress(OSError):  # not Linux
        with open('/proc/self/mountinfo') as file:
            for line in file:
                mount, _, kind = line.partition(' - ')
                if mount.split()[2] == wanted:
                    return kind.split()[0]
    return None
