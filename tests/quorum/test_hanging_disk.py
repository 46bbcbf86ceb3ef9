"""A disk that hangs does not hold the site: another node leads, if its own
disk answers; else nothing changes.

A disk hangs by an event: all syncs of one node wait for it, those of its
probes, too.  The two nodes are on two file systems.
"""

import itertools
import logging
import os
import threading

from fsyncstorage import datafile
from fsyncstorage.quorum.history.record import node_name
from fsyncstorage.quorum.log.notes import parse_note
from fsyncstorage.quorum.roles import probing
from fsyncstorage.quorum.roles import role
from fsyncstorage.quorum.roles.probing import Probing
from fsyncstorage.quorum.roles.probing import writes_completed

from ..memory import scratch_directory
from ..support import TestCase
from ..support import Thread
from ..support import commit
from ..support import oid
from ..support import until
from .roles import RolesTest


class Hanging(datafile.Disk):

    def __init__(self):
        self.goes_on = threading.Event()
        #: Directories.
        self.hang = []

    def sync(self, fd):
        path = os.readlink(f'/proc/self/fd/{fd}')
        if any(path.startswith(each + os.sep) for each in self.hang):
            self.goes_on.wait()
        os.fdatasync(fd)


class InTheWay(logging.Handler):
    """It waits for the same disk: the process' log is there, too."""

    def __init__(self, disk):
        super().__init__()
        self._disk = disk

    def handle(self, record):
        if record.getMessage().startswith('a:'):
            self._disk.goes_on.wait()


class TwoNodes(RolesTest):

    patience = 0.5

    def setUp(self):
        shared = scratch_directory()
        self.in_memory = shared.__enter__()
        self.addCleanup(shared.__exit__, None, None, None)
        super().setUp()
        self.disk = Hanging()
        self.addCleanup(self.disk.goes_on.set)
        self.patch(datafile, disk=self.disk)
        self.patch(probing, write_and_sync=lambda file: self.disk.sync(
            file.fileno()), writes_completed=lambda device: None)

    def path(self, name='Data.fs'):
        """`b` is on another file system."""
        return os.path.join(self.in_memory, name) if (
            name.startswith('b')) else super().path(name)

    def hang(self, *nodes):
        self.disk.hang = [
            os.path.realpath(os.path.dirname(each.path)) for each in nodes]

    def test_another_one_leads(self):
        """Nothing that waits for the disk is in the way: no commit, and no
        line of the log."""
        self.both()
        handler = InTheWay(self.disk)
        logging.getLogger('fsyncstorage').addHandler(handler)
        self.addCleanup(logging.getLogger('fsyncstorage').removeHandler,
                        handler)
        self.hang(self.a)
        committing = Thread(commit, self.a.storage, {1: b'x'})
        self.b.leads()
        self.assertEqual(self.a.host.done, ['hang up'])
        self.assertFalse(self.a.storage.replica.may_answer())
        commit(self.b.storage, {2: b'y'})
        self.disk.goes_on.set()
        committing.join()
        until(lambda: self.a.host.done[1:] == [('end', True)], 'it begins'
              ' anew')
        # What it had brought into the log before is kept by the next one.
        self.assertEqual(self.b.storage.load(oid(1))[0], b'x')

    def test_one_that_takes_over(self):
        """It has the lease, and does not come to lead."""
        self.both()
        lead = role.lead

        def hangs(follower, *args):
            if follower.name == self.b.path:
                self.hang(self.b)
                self.disk.goes_on.wait()
            return lead(follower, *args)

        self.patch(role, lead=hangs)
        self.a.close()
        until(lambda: self.disk.hang, 'the other one takes over')
        self.a.open()
        self.a.leads()
        self.disk.goes_on.set()
        self.b.follows()

    def test_other_programs_write_there(self):
        """The disk may be slow: nothing changes hands, but it is said."""
        self.both()
        completed = itertools.count()
        self.patch(probing, writes_completed=lambda device: next(completed))
        self.hang(self.a)
        name = node_name('a')
        until(lambda: 'no probe' in parse_note(
            self.engine.kept[name]).health.trouble, 'it says so')
        self.assertEqual(self.a.host.done, [])

    def test_both_hang(self):
        """One storage is behind both: nothing changes hands."""
        self.both()
        self.hang(self.a, self.b)
        presence = self.a.storage.replica._presence
        until(lambda: presence.disk_trouble, 'its disk hangs')
        until(lambda: not presence.another_could_lead, 'the other one, too')
        self.assertIn('has not answered', self.a.storage.replica.trouble)
        self.assertEqual(self.a.host.done, [])
        self.disk.goes_on.set()
        commit(self.a.storage, {1: b'x'})
        until(lambda: not self.a.storage.replica.trouble, 'all is well')
        self.assertEqual(self.a.host.done, [])

    def test_a_standby_that_hangs_does_not_take_the_lease(self):
        self.both()
        self.hang(self.b)
        until(lambda: self.b.node._presence.probing.silence > 0.3, 'it hangs')
        self.a.close()
        until(lambda: self.b.node._holding._free_since, 'it sees it free')
        self.assertIsNone(self.engine.holder())
        self.a.open()
        self.a.leads()
        self.assertTrue(self.engine.holder().startswith(b'a '))


class Full(RolesTest):
    """A node whose disk is full gives way to one whose disk is not."""

    def setUp(self):
        super().setUp()
        self.room = dict.fromkeys('ab', 1 << 30)
        self.patch(probing, free=lambda path: self.room[
            os.path.relpath(path, self.directory)[0]])

    def test_another_one_leads(self):
        self.both()
        with self.assertLogs('fsyncstorage', 'CRITICAL') as logs:
            self.room['a'] = 5 << 20
            self.b.leads()
        self.assertIn('full: 5 MB are left, and another', logs.output[0])

    def test_nobody_has_room(self):
        """Nothing changes hands, and the note says why."""
        self.both()
        self.room.update(a=5 << 20, b=200 << 20)
        name = node_name('a')
        until(lambda: 'full' in parse_note(
            self.engine.kept[name]).health.trouble, 'it says so')
        self.assertEqual(self.a.host.done, [])
        self.assertIsNone(self.a.storage.replica.trouble)


class Progress(TestCase):

    def test_what_the_kernel_counts(self):
        device = os.stat(self.directory).st_dev
        counted = writes_completed(device)
        if counted is None:
            self.skipTest('this file system has no block device')
        with datafile.open_new(self.path('file')) as file:
            file.write_at(b'x', 0)
            file.sync()
        self.assertGreater(writes_completed(device), counted)
        self.assertIsNone(writes_completed(os.stat('/proc').st_dev))

    def test_a_disk_that_has_an_error(self):
        """Neither is that progress, nor does it end the thread."""
        def fail(file):
            raise OSError('no')

        self.patch(probing, write_and_sync=fail)
        probes = Probing(
            [self.directory, self.path('missing')], [self.directory], 0.01)
        self.addCleanup(probes.close)
        probes.start()
        until(lambda: probes.trouble == 'no', 'it says so')
        self.assertEqual(probes.age, float('inf'))
        self.patch(probing, write_and_sync=lambda file: None)
        until(lambda: probes.trouble is None, 'it goes on')
