"""What is packed: a file that no other process has open, or the storage of a
server.

Either is opened as a storage, and both report their packs in the same way
(`packs`).  A forecast opens a file for reading only, which takes no lock.

An ADDRESS is `host:port`, or the path of a unix socket; everything else is the
path of a file.
"""

import contextlib
import os
import pwd
import re
import socket
import stat

import zc.lockfile
from ZEO.Exceptions import ClientDisconnected
from ZODB.blob import LAYOUT_MARKER

from ..check.tails import NoDataFile
from ..check.tails import wrong_magic
from ..check.terminal import CannotRun
from ..check.terminal import opened
from ..check.terminal import opened_blobs
from ..client.opening import open_client
from ..format.window import Window
from ..storage.opening import InUse
from ..storage.opening import holder
from ..storage.storage import FsyncStorage

#: Seconds until a server must have answered.
PATIENCE = 10
_HOST_AND_PORT = re.compile(r'(?P<host>\[[^]]*\]|[^:/]*):(?P<port>[0-9]{1,5})')


def address_of(path):
    """The address; None if `path` is that of a file."""
    with contextlib.suppress(OSError):
        return path if stat.S_ISSOCK(os.stat(path).st_mode) else None
    match = _HOST_AND_PORT.fullmatch(path)
    if match is None or int(match['port']) > 0xffff:
        return None
    return match['host'].strip('[]') or '127.0.0.1', int(match['port'])


# A file

@contextlib.contextmanager
def file_opened(options):
    """The storage of the file."""
    path = options.path
    # A pack through a symbolic link would replace the link by the new file.
    real = os.path.realpath(path)
    with contextlib.closing(opened(path)) as file:
        try:
            wrong = wrong_magic(Window.of_file(file.fileno()))
        except NoDataFile as error:
            wrong = error
        if wrong:
            raise CannotRun(f'{path}: {wrong}')
        if not options.dry_run:
            _become_owner(path, os.fstat(file.fileno()))
    if options.blobs:
        _refuse_other_directories(options.blobs)
    try:
        storage = FsyncStorage(
            real, read_only=options.dry_run, blob_dir=options.blobs,
            pack_gc=options.gc)
    except InUse as error:
        raise CannotRun(str(error)) from None
    except zc.lockfile.LockError:
        raise CannotRun(
            f'{path} is open in {holder(real)}: give the ADDRESS of that'
            ' server in the place of the file') from None
    with contextlib.closing(storage):
        yield storage


def _refuse_other_directories(blobs):
    """Refuse a directory that is not a blob directory.

    A pack removes everything in it that is not needed.
    """
    opened_blobs(blobs)
    old = os.path.abspath(blobs) + '.old'
    for path in blobs, old:
        if path == old and not (os.path.isdir(old) and os.listdir(old)):
            continue
        if not os.path.isfile(os.path.join(path, LAYOUT_MARKER)):
            raise CannotRun(
                f'{path} has no {LAYOUT_MARKER}: it is no blob directory.'
                ' Nothing was changed')


def _become_owner(path, found):
    """Run as the owner of the file.

    The files that a pack makes must belong to this user: otherwise the server
    could not open them afterwards.  Root becomes that user for good, so that
    it does nothing in the user's directory that the user may not do.
    """
    uid = os.geteuid()
    if found.st_uid == uid:
        return
    if uid != 0:
        raise CannotRun(
            f'{path} belongs to the user {found.st_uid}, and this is the user'
            f' {uid}: a pack would leave files that its server cannot open.'
            ' Run it as that user')
    try:
        name = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        os.setgroups([])
    else:
        os.initgroups(name, found.st_gid)
    os.setgid(found.st_gid)
    os.setuid(found.st_uid)


# A server

@contextlib.contextmanager
def server_asked(options):
    """The storage of the server, over a connection."""
    address = options.address
    # If nobody listens, this says so at once: a client would try for long.
    if isinstance(address, tuple):
        socket.create_connection(address, PATIENCE).close()
    else:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(PATIENCE)
            probe.connect(address)
    try:
        storage = open_client(
            address, options.storage, wait_timeout=PATIENCE,
            read_only_fallback=True, local_reads='off')
    except ClientDisconnected:
        raise CannotRun(
            f'{options.path}: there is no ZEO server with a storage'
            f' {options.storage!r} that answers within {PATIENCE} s. (One that'
            ' wants TLS cannot be asked by this command)') from None
    with contextlib.closing(storage):
        if storage.isReadOnly() and not options.status:
            raise CannotRun(f'{options.path}: the server is read-only')
        yield storage
