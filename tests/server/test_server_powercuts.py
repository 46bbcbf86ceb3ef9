"""What a server has told its clients is kept, whenever the power fails.

A power cut is made in a process, by the model of `crashing`: it finds what was
said before it was durable.  Servers that are killed in truth are in
`tests/crash`: `cuts`, `test_client_cuts`, `test_local_bank`.
"""

import unittest

from fsyncstorage import AsyncFinish
from fsyncstorage.commit.policies import POLICIES

from ..crash.harness import campaign
from ..crash.harness import judge
from ..crash.harness import served
from ..crash.test_crash_images import ours

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
