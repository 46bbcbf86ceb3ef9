"""The directory of a blob cache: its layout, and which files are in it.

Blobs lie where a stock client looks for them, under its names and with its
layout marker, so that either can take over from the other (not both at once).
All other files lie in a directory of their own, which stock ignores; they are
listed in docs/internals/blobcache.rst.

A *name* is the path of a blob file below the directory.  Left to the books:
which files are removed.
"""

import contextlib
import os
import stat
import time

from ZEO.ClientStorage import BlobCacheLayout
from ZODB.blob import BLOB_SUFFIX
from ZODB.blob import LAYOUT_MARKER

from . import filelocks

LAYOUT = 'zeocache'
OWN = 'fsyncstorage'

#: File systems of other machines, as Linux calls them.
NETWORK = frozenset({
    '9p', 'afs', 'beegfs', 'ceph', 'cifs', 'fuse.glusterfs', 'fuse.s3fs',
    'fuse.sshfs', 'gfs2', 'gpfs', 'lustre', 'ncpfs', 'nfs', 'nfs4', 'ocfs2',
    'smb3', 'smbfs'})

#: Seconds after which a file of a stock client's unfinished transaction counts
#: as no longer in use.
FORGOTTEN = 24 * 3600

#: As stock: the user that runs the client may read a cached blob.
MODE = 0o400

SECOND = 10**9  # nanoseconds

#: Nanoseconds.  A time of use further ahead comes from a wrong clock.
LONGEST_LEASE = 24 * 3600 * SECOND


class CacheDirectory:

    def __init__(self, path, mode=MODE):
        """`mode` is that of a blob file; its readers may enter the way to it.
        """
        self.path = os.path.abspath(path)
        self.mode = mode
        self.temporary = os.path.join(self.path, 'tmp')
        self._own = os.path.join(self.path, OWN)
        self._parts = os.path.join(self._own, 'parts')
        self._walked = os.path.join(self._own, 'walked')
        self.books = os.path.join(self._own, 'books.sqlite')
        self.lock = os.path.join(self._own, 'lock')
        self._layout = BlobCacheLayout()

    def make(self):
        """Make what is missing, or refuse the directory."""
        os.makedirs(self.path, exist_ok=True)
        self._refuse_network()
        marker = os.path.join(self.path, LAYOUT_MARKER)
        if self._layout_found(marker) != LAYOUT:
            with open(marker, 'w') as file:
                file.write(LAYOUT)
        for path in self.temporary, self._parts:
            os.makedirs(path, exist_ok=True)
        for path in self.path, *map(self.blob, self._buckets()):
            self._let_pass(path)

    def _let_pass(self, directory):
        """Let users that may read blobs enter this directory."""
        _permit(directory, os.stat(directory), self.mode >> 2 & 0o111)

    def _refuse_network(self):
        kind = file_system(self.path)
        if kind in NETWORK:
            raise ValueError(
                f'{self.path} is on a network file system ({kind}), where'
                ' processes cannot rely on file locks. A blob cache belongs'
                ' on a disk of this machine: choose another blob-dir')

    def _layout_found(self, marker):
        """The layout of this directory; '' if it has none yet."""
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
        return layout

    # Names

    def name(self, oid, serial):
        return self._layout.getBlobFilePath(oid, serial)

    def blob(self, name):
        return f'{self.path}/{name}'

    def has(self, name):
        return os.path.exists(self.blob(name))

    def use(self, name, seconds=0):
        """Note that a blob is used for `seconds`, and return its size."""
        path = self.blob(name)
        found = os.stat(path)
        now = time.time_ns()
        until = now + int(min(seconds * SECOND, LONGEST_LEASE))
        if found.st_atime_ns <= now + LONGEST_LEASE:
            until = max(until, found.st_atime_ns)
        with contextlib.suppress(PermissionError):  # another user's file
            _permit(path, found, self.mode)
            os.utime(path, ns=(until, found.st_mtime_ns))
        return found.st_size

    def last_use(self, name):
        """Its time in nanoseconds; 0 if the blob is not there."""
        try:
            return os.stat(self.blob(name)).st_atime_ns
        except FileNotFoundError:
            return 0

    def arriving(self, name):
        """The file with the bytes of a blob that are there; None: no file."""
        for path in self._part(name), self.blob(name):
            with contextlib.suppress(FileNotFoundError):
                return open(path, 'rb', buffering=0)
        return None

    def is_gone(self, name):
        return not self.has(name) and not os.path.exists(self._part(name))

    def opened(self, name):
        try:
            return open(self.blob(name), 'rb', buffering=0)
        except FileNotFoundError:
            return contextlib.nullcontext()

    def remove(self, name):
        _remove(self.blob(name))

    # Downloads

    def _part(self, name):
        return os.path.join(self._parts, name.replace(os.sep, '-'))

    def claim(self, name, wait=True):
        """The part of a blob, locked; see `filelocks.claim`."""
        try:
            return filelocks.claim(self._part(name), wait)
        except FileNotFoundError:  # the whole directory was cleared
            self.make()
            return filelocks.claim(self._part(name), wait)

    def claim_missing(self, name, wait=True):
        """The part of a blob that is not there, locked.

        None: the blob is there; or, without waiting, another has the lock.
        """
        part = self.claim(name, wait)
        if part is not None and self.has(name):
            with part:
                self.remove_part(name)
            return None
        return part

    def is_on_its_way(self, name):
        """Is a process still working on this download?"""
        if self.has(name):
            return False
        try:
            part = filelocks.claim(
                self._part(name), wait=False, flags=os.O_RDONLY)
        except FileNotFoundError:
            return False
        if part is not None:
            part.close()
        return part is None

    def remove_part(self, name):
        _remove(self._part(name))

    def replace_part(self, path, name):
        os.chmod(path, 0o600)
        os.rename(path, self._part(name))

    def complete(self, name):
        """Make the part the blob.  The bucket exists already (`keep`)."""
        os.rename(self._part(name), self.blob(name))

    def parts(self):
        """The names of blobs that are, or were, being downloaded."""
        return [part.replace('-', os.sep, 1)
                for part in os.listdir(self._parts)]

    # Guests

    def keep(self, name):
        """A lock: as long as it is open, no guest of this bucket is removed.

        It is a shared lock on the bucket.  A lock on the file would delay
        processes that still wait for the lock of the part, which became this
        file.
        """
        bucket = os.path.dirname(self.blob(name))
        try:
            lock = filelocks.LockFile(bucket, os.O_RDONLY)
        except FileNotFoundError:
            os.makedirs(bucket, exist_ok=True)
            self._let_pass(bucket)
            lock = filelocks.LockFile(bucket, os.O_RDONLY)
        lock.share()
        return lock

    def seize(self, name):
        """The same lock, not shared.

        None if another process keeps the guest, or still downloads it.
        """
        if os.path.exists(self._part(name)):
            return None
        bucket = os.path.dirname(self.blob(name))
        try:
            return filelocks.claim(bucket, wait=False, flags=os.O_RDONLY)
        except FileNotFoundError:
            return contextlib.nullcontext()

    # The walk

    def machine_restarted(self):
        """Was it restarted since the last walk?  Known on Linux only."""
        try:
            with open(self._walked) as file:
                return file.read() != boot()
        except FileNotFoundError:
            return False

    def needs_walk(self):
        """Was there no walk yet, or has a stock client been here since?

        A stock client leaves a file `.lock` where it puts a blob.
        """
        try:
            walked = os.stat(self._walked).st_mtime_ns
        except FileNotFoundError:
            return True
        for bucket in self._buckets():
            with contextlib.suppress(FileNotFoundError):
                lock = self.blob(f'{bucket}/.lock')
                if os.stat(lock).st_mtime_ns > walked:
                    return True
        return False

    @contextlib.contextmanager
    def walk(self):
        """Yield an iterator of all blobs, as (time of access, name, size).

        The walk counts only if the `with` ends without an error.
        """
        begun = f'{self._walked}.begun'
        with open(begun, 'w') as file:
            file.write(boot())
        yield self._files()
        os.replace(begun, self._walked)

    def _buckets(self):
        with os.scandir(self.path) as entries:
            return [entry.name for entry in entries
                    if entry.name.isdigit() and entry.is_dir()]

    def _files(self):
        for bucket in self._buckets():
            path = self.blob(bucket)
            with os.scandir(path) as entries:
                entries = list(entries)
            _remove_leftovers(path, entries)
            for entry in entries:
                if entry.name.endswith(BLOB_SUFFIX):
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat()
                        yield (found.st_atime_ns, f'{bucket}/{entry.name}',
                               found.st_size)


def _remove_leftovers(bucket, entries):
    """Remove what killed stock clients have left."""
    downloads = [entry for entry in entries if entry.name.endswith('.dl')]
    if downloads and _no_stock_client_downloads(bucket):
        for entry in downloads:
            _remove(entry.path)
    for entry in entries:
        if entry.name.endswith(('.tmp', '.tmp-')):
            with contextlib.suppress(FileNotFoundError):
                if entry.stat().st_mtime < time.time() - FORGOTTEN:
                    _remove(entry.path)


def _no_stock_client_downloads(bucket):
    """Is there no download of a stock client into this bucket?

    For a download, a stock client locks the bucket's file `.lock`.
    """
    try:
        file = filelocks.LockFile(os.path.join(bucket, '.lock'))
    except FileNotFoundError:
        return True
    with file:
        return file.lock(wait=False)


def _permit(path, found, mode):
    """Add the permissions of `mode` to those that it has."""
    if mode & ~found.st_mode:
        os.chmod(path, stat.S_IMODE(found.st_mode) | mode)


def _remove(path):
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


def boot():
    """A name for this run of the machine, from its start; '' if unknown."""
    try:
        with open('/proc/sys/kernel/random/boot_id') as file:
            return file.read().strip()
    except OSError:
        return ''


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
