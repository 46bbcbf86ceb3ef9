"""What a server has told its clients is kept, whenever it dies.

A power cut is made in a process, by the model of `crashing`: it finds what was
said before it was durable.  `kill -9` is real, and takes nothing from the
disk: it is for all the rest, the files that a server leaves behind, its
restart, and clients that go on.
"""

import contextlib
import random
import signal
import tempfile
import threading
import unittest

from ZEO.ClientStorage import ClientStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import z64

from fsyncstorage import AsyncFinish
from fsyncstorage.commit.policies import POLICIES

from ..commands import SCRIPTS
from ..commands import Commands
from ..commands import answers
from ..crash.harness import campaign
from ..crash.harness import judge
from ..crash.harness import served
from ..crash.test_crash_images import ours
from ..support import PATIENCE
from ..support import Thread
from .clients import BlobClient
from .clients import ChannelClient
from .clients import LightClient
from .clients import Log
from .clients import PackingClient
from .clients import content

UNPROMISING = [
    name for name, policy in POLICIES.items() if not policy.promises]


def trial(policy, workload, images):
    recording = campaign.record(workload, ours(policy))
    return campaign.trial(
        recording, judge.Judge(ours(policy), policy, recording.ledger), images)


class PowerCut(unittest.TestCase):

    level = 2
    #: Images, for each hundred of the workload.
    percent = 15

    def test_what_clients_were_told_is_kept(self):
        for policy in POLICIES:
            with self.subTest(policy):
                self.check(policy, served.Served())

    def test_what_asked_for_more_is_kept(self):
        """And what is before it."""
        for policy in UNPROMISING:
            with self.subTest(policy):
                self.check(policy, served.Asking())

    def check(self, policy, workload):
        images = workload.images * self.percent // 100
        count, wrong = campaign.wrong(trial(policy, workload, images))
        self.assertEqual(wrong, {})
        self.assertGreaterEqual(count, images)


class ManyPowerCuts(PowerCut):

    level = 3
    percent = 1000


class TooSoon:
    """Its server takes what is appended for durable."""

    def finish_of(self, storage):
        finish = storage.tpc_finish

        def finish_too_soon(transaction, answer):
            tid = finish(transaction, AsyncFinish(_nothing, _nothing))
            answer.taken = True
            answer.publish(tid)
            storage._sequencer.offer()  # the server announces it
            return tid

        return finish_too_soon


class ServedTooSoon(TooSoon, served.Served):
    pass


def _nothing(*arguments):
    pass


class Harness(unittest.TestCase):

    level = 2

    def test_a_server_that_answers_too_soon_is_noticed(self):
        for policy in POLICIES:
            if policy not in UNPROMISING:
                with self.subTest(policy):
                    self.assertEqual(self.kinds(policy, ServedTooSoon()),
                                     {judge.LOST, judge.SILENT})

    def kinds(self, policy, workload):
        return {problem.kind
                for _, _, problems in trial(policy, workload, 50)
                for problem in problems}


CONFIG = """
%import fsyncstorage
<zeo>
  address {directory}/socket
</zeo>
<fsyncstorage 1>
  path {directory}/Data.fs
  blob-dir {directory}/blobs
  durability group-commit
  index-checkpoint 64KB
  pack-gc false
  pack-keep-old false
</fsyncstorage>
"""

# Of all clients, from when each goes on to when the server is killed.
MOST_COMMITS = 300


class Kill(Commands):

    level = 2
    times = 1

    def setUp(self):
        super().setUp()
        with open(self.path('zeo.conf'), 'w') as config:
            config.write(CONFIG.format(directory=self.directory))
        self.log = Log(self.path('acknowledged'))
        self.addCleanup(self.log.close)
        self.clients = [
            kind(self.path('socket'), self.log, place)
            for place, kind in enumerate((
                LightClient, PackingClient, BlobClient, ChannelClient,
                ChannelClient))]
        for client in self.clients:
            self.addCleanup(client.close)
        #: What the log does not know: (number, tid).
        self.cut_off = set()

    def serve(self):
        self.server = self.start(
            [*SCRIPTS['fsync-runzeo'], '-C', self.path('zeo.conf')],
            lambda: answers(self.path('socket')))

    def kill_under_load(self, tids, commits):
        """Let the clients commit, and kill the server after so many."""
        killed = threading.Event()
        threads = [Thread(client.run, tids, killed)
                   for client in self.clients]
        for client in self.clients:
            self.assertTrue(client.goes_on.wait(PATIENCE))
        self.log.lines = threading.Semaphore(0)
        for _ in range(commits):
            self.assertTrue(self.log.lines.acquire(timeout=PATIENCE))
        killed.set()
        self.server.kill()
        self.server.wait()
        for thread in threads:
            thread.result()

    def check(self):
        """What was logged is there.  Return the tid of each object."""
        tids, logged = {}, self.log.newest()
        with tempfile.TemporaryDirectory() as blobs, contextlib.closing(
                ClientStorage(self.path('socket'), blob_dir=blobs)) as storage:
            for client in self.clients:
                for number in client.numbers:
                    tids[number] = self.check_object(
                        client, storage, number,
                        *logged.get(number, (0, z64)))
        return tids

    def check_object(self, client, storage, number, count, tid):
        try:
            data, found = client.look_up(storage, number)
        except POSKeyError:
            self.assertEqual(count, 0, f'object {number} is missing')
            return z64
        if found != tid:  # by a commit whose answer was cut off
            self.assertGreater(found, tid, f'object {number} is too old')
            self.cut_off.add((number, found))
            count += 1
        self.assertEqual(data, content(number, count), f'object {number}')
        return found

    def test_what_clients_were_told_is_kept(self):
        source = random.Random(1)
        for _ in range(self.times):
            self.serve()
            self.kill_under_load(
                self.check(), source.randrange(MOST_COMMITS))
        self.serve()
        self.check()
        self.server.send_signal(signal.SIGTERM)
        self.assertEqual(self.server.wait(PATIENCE), 0)
        for word in 'ERROR', 'CRITICAL', 'Traceback':
            self.assertNotIn(word, self.said())
        packs = sum(getattr(client, 'packs', 0) for client in self.clients)
        print(f'  {self.times} kills, {self.log.count()} commits,'
              f' {len(self.cut_off)} of them cut off, {packs} packs')


class KillOften(Kill):

    level = 3
    times = 100
