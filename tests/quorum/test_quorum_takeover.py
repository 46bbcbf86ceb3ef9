"""A node that has the lease becomes the one that writes (I16)."""

import threading

from fsyncstorage.errors import DiskError
from fsyncstorage.quorum.history.record import Epoch
from fsyncstorage.quorum.roles.takeover import lead

from ..support import Thread
from .fakelog import FakeLog
from .fakelog import Fault
from .logged import NODE
from .logged import FollowTest
from .logged import contents
from .nodes import bodies


class Interrupted(FakeLog):
    """Something happens before its first append."""

    def __init__(self, engine, happens):
        super().__init__(engine)
        self._happens = happens

    def append(self, before, place, raw):
        happens, self._happens = self._happens, lambda: None
        happens()
        super().append(before, place, raw)


class Takeover(FollowTest):

    def setUp(self):
        super().setUp()
        self.begin()
        self.may_go_on = True

    def lead(self, follower, log=None):
        return lead(follower, log or FakeLog(self.engine), NODE,
                    lambda: self.may_go_on, self.stopping)

    def is_handed_over(self, follower):
        """Its file is what the log says, without half a batch."""
        opened = self.handed_over(follower)
        self.assertEqual(self.content(), contents(self.engine.records).content)
        self.assertEqual(opened.content.end, len(self.content()))

    def test_a_record_that_comes_in_between(self):
        """It was acknowledged, so it is before the epoch."""
        follower = self.rejoin()
        self.lead(follower, Interrupted(
            self.engine, lambda: self.logged.write(10)))
        self.assertIsInstance(bodies(self.engine)[-1], Epoch)
        self.assertGreater(follower.whole.end, 4)
        self.is_handed_over(follower)

    def test_another_leads_in_between(self):
        """And this one again behind it, with another instance."""
        follower = self.rejoin()
        led = self.lead(follower, Interrupted(self.engine, self.logged.lead))
        epochs = [each for each in bodies(self.engine)
                  if isinstance(each, Epoch)]
        self.assertEqual(epochs[-1].server, led.instance)
        self.is_handed_over(follower)

    def test_no_two_epochs_have_one_instance(self):
        instances = set()
        for _ in range(3):
            follower = self.rejoin()
            instances.add(self.lead(follower).instance)
            opened = follower.hand_over()
            opened.file.close()
            opened.lock_file.close()
        self.assertEqual(len(instances), 3)

    def test_a_pack_that_the_standby_had_not_ended(self):
        """It was broken off with the standby, and is made again."""
        follower = self.rejoin()
        follower.stopping = threading.Event()   # as a standby has its own
        self.logged.objects = 5
        self.logged.write(*range(10, 60)).begin_pack()
        self.apply_all(follower)
        self.logged.swap()
        follower.stopping.set()
        leading = Thread(self.lead, follower)
        self.assertIsNotNone(leading.result())
        self.is_handed_over(follower)

    def test_the_lease_is_lost_meanwhile(self):
        """It does not try again."""
        def happens():
            self.may_go_on = False
            log.faults.append(Fault.BEFORE)

        follower = self.rejoin()
        log = Interrupted(self.engine, happens)
        before = self.engine.head
        self.assertIsNone(self.lead(follower, log))
        self.assertEqual(self.engine.head, before)

    def test_a_disk_that_fails(self):
        """It does not lead: another node may be sound."""
        disk = self.controlled_disk()
        follower = self.rejoin()
        self.logged.write(10)
        before = self.engine.head
        disk.fail_sync(OSError('no'))
        with self.assertRaises(DiskError):
            self.lead(follower)
        self.assertEqual(self.engine.head, before)
