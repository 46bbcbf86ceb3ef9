"""A machine with one disk: plugin -> nbdkit -> nbdfuse -> loop device -> ext4.

The loop device goes around the page cache of the file below it: what it reads
is what the disk has.  Needs root, Linux, and the tools in TOOLS.
"""

import atexit
import contextlib
import os
import shutil
import subprocess

from ...support import PATIENCE
from ...support import until
from . import plugin

TOOLS = 'nbdkit', 'nbdfuse', 'losetup', 'mkfs.ext4', 'e2fsck', 'mount'
SIZE = 64 << 20
#: The file system shall not flush of its own accord, in the middle of a test.
RARELY = 'commit=600'
NOT_MOUNTED = 32  # says umount


def why_it_cannot_run():
    if not hasattr(os, 'geteuid') or os.geteuid():
        return 'only root may mount'
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f'not installed: {" ".join(missing)}'
    if not os.path.exists('/dev/fuse') or not os.path.exists(
            '/dev/loop-control'):
        return 'this kernel has no FUSE or no loop devices'
    have = subprocess.run(
        ['nbdkit', '--dump-plugin', 'python'], capture_output=True)
    if have.returncode:
        return 'the Python plugin of nbdkit is not installed'


class Machine:
    """It can be switched on and off; the image of its disk stays."""

    def __init__(self, directory, journal=True):
        self._path = lambda name: os.path.join(directory, name)
        #: Where the file system is, while the power is on.
        self.root = self._path('root')
        self._under = self._path('under')
        os.mkdir(self.root)
        os.mkdir(self._under)
        with open(self._path('image'), 'wb') as image:
            image.truncate(SIZE)
        _run('mkfs.ext4', '-q', '-F', '-E', 'lazy_itable_init=0',
             '-O', 'has_journal' if journal else '^has_journal',
             self._path('image'))
        self._journal = journal
        self._on = contextlib.ExitStack()
        # Not even after Ctrl-C, which ends a test without its cleanups, shall
        # anything stay mounted.
        atexit.register(self.switch_off)

    def switch_on(self):
        """Start the disk, and mount what is on it."""
        with contextlib.ExitStack() as on:
            socket = self._path('socket')
            self._disk = on.enter_context(_process(
                'nbdkit', '--foreground', '--exit-with-parent',
                '--unix', socket, 'python', plugin.__file__,
                f'image={self._path("image")}', f'fail={self._path("fail")}'))
            on.callback(_remove_if_there, socket)
            until(lambda: os.path.exists(socket), 'a socket of nbdkit')
            on.callback(_run, 'umount', '--lazy', self._under,
                        codes=(0, NOT_MOUNTED))
            on.enter_context(_process(
                'nbdfuse', self._under, '--unix', socket))
            file = os.path.join(self._under, 'nbd')
            until(lambda: os.path.exists(file), 'a file of nbdfuse')
            device = _run('losetup', '--find', '--show', '--direct-io=on',
                          file).strip()
            try:
                if not self._journal:
                    _run('e2fsck', '-fy', device, codes=(0, 1))
                _run('mount', '-o', RARELY if self._journal else 'defaults',
                     device, self.root)
                on.callback(_unmount, self.root)
            finally:
                # From now on it is detached when it is unmounted.
                _run('losetup', '--detach', device)
            self._on = on.pop_all()

    def switch_off(self):
        """As it should be done: unmount, then switch off."""
        self._on.close()

    def cut_the_power(self):
        """The disk forgets.  Then close all files, and switch off and on."""
        self._disk.kill()

    def fail_next_flush(self):
        with open(self._path('fail'), 'w'):
            pass


@contextlib.contextmanager
def _process(*command):
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _run(*command, codes=(0,)):
    done = subprocess.run(command, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True,
                          timeout=PATIENCE)
    if done.returncode not in codes:
        raise OSError(f'{" ".join(command)}: {done.stdout.strip()}')
    return done.stdout


def _unmount(path):
    try:
        _run('umount', path)
    except OSError:
        # Somebody has a file open: say so, but leave nothing behind.
        _run('umount', '--lazy', path)
        raise


def _remove_if_there(path):
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
