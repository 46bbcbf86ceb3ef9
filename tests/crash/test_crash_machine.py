"""Random lives of a storage, with power cuts between any two of its steps.

Hypothesis chooses what is done: transactions, blobs, undos, packs, index
checkpoints, syncs that fail, restarts, kills and power cuts.  After each
opening, what the storage shows is held against what was promised; then it goes
on from there.
"""

import contextlib
import errno
import functools
import os
import random
import shutil
import unittest

from hypothesis import HealthCheck
from hypothesis import strategies
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import initialize
from hypothesis.stateful import precondition
from hypothesis.stateful import rule
from hypothesis.stateful import run_state_machine_as_test
from ZODB.POSException import POSKeyError
from ZODB.POSException import UndoError

from fsyncstorage import FsyncStorage
from fsyncstorage.commit.policies import POLICIES
from fsyncstorage.errors import DiskError

from ..generated import settings
from ..memory import scratch_directory
from ..often import often
from .harness import campaign
from .harness import images
from .harness import powercut
from .harness.judge import Judge
from .harness.ledger import Ledger
from .harness.ledger import Standing
from .harness.site import FIRST_TID
from .harness.site import Site
from .harness.tearing import MODELS
from .harness.tearing import STALE

EXAMPLES = often(12, 3000)
STEPS = 40

CUTS = MODELS | STALE

OBJECT_NUMBERS, BLOB_NUMBERS = range(6), range(6, 8)
OBJECTS = strategies.sampled_from(OBJECT_NUMBERS)
BLOBS = strategies.sampled_from(BLOB_NUMBERS)
SIZES = strategies.sampled_from((0, 10, 400, 600, 4000, 9000))
ASKED = strategies.sampled_from((None, None, 'group-commit'))

no_transaction = precondition(lambda self: self.attempt is None)
storing = precondition(lambda self: self.attempt and not self.voted)
# (Stock cannot open a file of empty transactions.)
storing_something = precondition(
    lambda self: self.attempt and not self.voted
    and self.attempt.content.records)
voted = precondition(lambda self: self.voted)


class Lives(RuleBasedStateMachine):

    def __init__(self):
        super().__init__()
        self.resources = contextlib.ExitStack()
        self.resources.enter_context(campaign.quiet())
        self.scratch = self.resources.enter_context(
            scratch_directory())
        self.life = contextlib.ExitStack()
        self.site = None
        self.attempt = None     # the transaction that is under way
        self.voted = False

    # From birth to death

    @initialize(policy=strategies.sampled_from(sorted(POLICIES)),
                keep_old=strategies.booleans())
    def create(self, policy, keep_old):
        self.policy = policy
        self.make = functools.partial(
            FsyncStorage, durability=policy, group_commit_delay=0,
            pack_keep_old=keep_old, pack_gc=False)
        self.begin_life(campaign.EMPTY, Ledger(), Standing(), FIRST_TID)
        # Before that, the blocks of a new file may show another's magic bytes.
        self.may_be_stale = len(self.site.recorder.log)

    def begin_life(self, image, ledger, standing, last_tid):
        directory = os.path.join(self.scratch, 'site')
        image.write(directory)
        self.life.callback(shutil.rmtree, directory)
        self.site = self.life.enter_context(Site(
            directory, self.make, blobs=True, ledger=ledger,
            standing=standing))
        self.site.last_tid = last_tid
        self.born = self.may_be_stale = len(self.site.recorder.log)
        self.open()

    def open(self):
        before = self.site.standing.copy()
        self.site.open()
        judge = self.judge(self.site.ledger)
        self.expect_nothing_wrong(
            judge.compare(judge.look(self.site.storage), before))

    def judge(self, ledger):
        return Judge(self.make, self.policy, ledger, blobs=True)

    def expect_nothing_wrong(self, problems):
        assert not problems, problems

    def end_life(self):
        """In memory: the disk has what it had when the power went."""
        if self.attempt is not None:
            self.abort()
        self.life.close()

    def teardown(self):
        try:
            self.end_life()
        finally:
            self.resources.close()

    @rule(model=strategies.sampled_from(sorted(CUTS)),
          seed=strategies.integers(0, 2 ** 32), late=strategies.booleans())
    def crash(self, model, seed, late):
        source = random.Random(seed)
        log = self.site.recorder.log[:]
        if not late:
            earliest = self.may_be_stale if model in STALE else self.born
            del log[source.randint(earliest, len(log)):]
        standing = Standing()
        for event in log:
            standing.after(event)
        space = images.Space(powercut.Disk.after_all(log), CUTS[model])
        image = space.image(images.at_random(space.options, source))
        self.end_life()
        copy = os.path.join(self.scratch, 'copy')
        image.write(copy)
        self.expect_nothing_wrong(self.judge(self.site.ledger).verdict(
            copy, standing, thorough=True))
        shutil.rmtree(copy)
        self.begin_life(image, self.site.ledger, standing, self.site.last_tid)

    @no_transaction
    @rule()
    def restart(self):
        self.site.close()
        self.site.recorder.on_sync = lambda file: None
        self.open()

    @rule()
    def kill(self):
        """What was not synced is there, and may still be lost."""
        self.site.die()
        self.attempt, self.voted = None, False
        self.site.recorder.on_sync = lambda file: None
        self.site.recorder.operations_left = None
        self.open()

    @rule(successes=strategies.integers(0, 4))
    def fail_a_sync(self, successes):
        """After so many more that succeed."""
        outcomes = iter([None] * successes + [errno.EIO])

        def on_sync(file):
            error = next(outcomes, None)
            if error is not None:
                raise OSError(error, os.strerror(error))

        self.site.recorder.on_sync = on_sync

    # Transactions

    @no_transaction
    @rule(asks=ASKED)
    def begin(self, asks=None):
        with contextlib.suppress(DiskError):
            self.attempt = self.site.begin(asks=asks)

    @storing
    @rule(number=OBJECTS, size=SIZES)
    def store(self, number, size):
        if not self.attempt.stores(number):
            self.site.store(self.attempt, number, size)

    @storing
    @rule(number=BLOBS, size=SIZES)
    def store_blob(self, number, size):
        if not self.attempt.stores(number):
            self.site.store_blob(self.attempt, number, size)

    @storing_something
    @rule()
    def vote(self):
        try:
            self.site.vote(self.attempt)
            self.voted = True
        except (DiskError, OSError):  # of a blob, it fails alone
            self.abort()

    @voted
    @rule()
    def finish(self):
        with contextlib.suppress(DiskError):
            self.site.finish(self.attempt)
        self.attempt, self.voted = None, False

    @precondition(lambda self: self.attempt)
    @rule()
    def abort(self):
        self.site.abort(self.attempt)
        self.attempt, self.voted = None, False

    @no_transaction
    @rule(transactions=strategies.lists(strategies.tuples(
        strategies.dictionaries(OBJECTS | BLOBS, SIZES, min_size=1,
                                max_size=3), ASKED),
        min_size=1, max_size=4))
    def commit(self, transactions):
        """Whole ones: by single steps, few get that far."""
        for sizes, asks in transactions:
            self.begin(asks)
            if self.attempt is None:
                return
            for number, size in sizes.items():
                if number in BLOB_NUMBERS:
                    self.store_blob(number, size)
                else:
                    self.store(number, size)
            self.vote()
            if self.voted:
                self.finish()

    @no_transaction
    @rule(back=strategies.integers(0, 3))
    def undo(self, back):
        tids = list(self.site.standing.finishing)
        self.begin()
        if self.attempt is None:
            return
        try:
            self.site.undo(self.attempt, tids[-1 - back])
        except (UndoError, IndexError):
            self.abort()
        except POSKeyError:  # of a blob
            assert self.policy == 'none'
            self.abort()
        else:
            self.vote()
            if self.voted:
                self.finish()

    # Maintenance

    @no_transaction
    @rule()
    def pack(self):
        with contextlib.suppress(DiskError, OSError):
            self.site.pack()

    @rule()
    def checkpoint(self):
        with contextlib.suppress(DiskError, OSError):
            self.site.checkpoint()


class CrashMachine(unittest.TestCase):

    level = 2

    def test_any_life(self):
        run_state_machine_as_test(Lives, settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS,
            derandomize=True, database=None, deadline=None,
            suppress_health_check=list(HealthCheck)))
