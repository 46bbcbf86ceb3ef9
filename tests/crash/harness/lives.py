"""A server that loses its power again and again, at one address.

Its storage is recorded.  A cut ends every connection at once, and takes from
the disk what a power cut can; the next life begins with what is left, in a
directory of its own.  Clients live on, and do not know more than that they
were cut off.
"""

import contextlib
import os
import random
import threading
import typing
from unittest import mock

from fsyncstorage import FsyncStorage
from fsyncstorage import datafile
from fsyncstorage.server.server import Server

from ...support import PATIENCE
from ...support import Thread
from . import images
from . import past_seam
from . import powercut
from .recorder import Recorder
from .recorder import RecordingDisk
from .tearing import MODELS

# A cut takes what was not synced in the last moments, not hours.
SYNC_INTERVAL = 0.05


class Life:
    """One run of the server, from power to power cut."""

    def __init__(self, directory, address, image, policy):
        image.write(directory)
        self.path = os.path.join(directory, 'Data.fs')
        self.recorder = Recorder(directory)
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(
                datafile, 'disk', RecordingDisk(self.recorder)))
            stack.enter_context(past_seam.recorded(self.recorder))
            storage = FsyncStorage(
                self.path, durability=policy, sync_interval=SYNC_INTERVAL)
            stack.callback(storage.close)
            self._server = Server(address, {'1': storage})
            self._thread = Thread(self._server.loop)
            self._stack = stack.pop_all()

    def cut(self):
        """The disk as it was when the power went.

        Nobody is told anything after that.
        """
        log = self.recorder.log[:]
        cut_off = threading.Event()
        self._server.acceptor.event_loop.call_soon_threadsafe(
            self._cut_off, cut_off)
        if not cut_off.wait(PATIENCE):
            raise AssertionError('the server hangs')
        self._server.close()
        self._thread.result()
        self._stack.close()
        return powercut.Disk.after_all(log)

    def _cut_off(self, done):
        self._server.acceptor.stop_listening()
        for connection in list(self._server.connections):
            connection.abort()
        done.set()


class Cut(typing.NamedTuple):

    #: The file with all that was committed before, told or not.
    path: str
    image: images.Image


class Lives:
    """A context: while it lasts, there is a server most of the time."""

    def __init__(self, directory, policy, image, seed):
        self.address = os.path.join(directory, 'socket')
        self._directory = directory
        self._policy = policy
        self._image = image
        self._source = random.Random(seed)
        self._count = 0
        self._life = None

    def __enter__(self):
        self.begin()
        return self

    def __exit__(self, *error):
        if self._life is not None:
            self._life.cut()

    def begin(self):
        self._count += 1
        directory = os.path.join(self._directory, str(self._count))
        self._life = Life(directory, self.address, self._image, self._policy)

    def cut(self):
        life, self._life = self._life, None
        disk = life.cut()
        space = images.Space(disk, MODELS[self._source.choice(list(MODELS))])
        self._image = space.image(
            images.at_random(space.options, self._source))
        return Cut(life.path, self._image)
