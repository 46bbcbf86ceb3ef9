"""What became of commits, by what the log has of them (I16).  Goes with
`quorum/history/fates.py`.
"""

import unittest
from unittest import mock

from hypothesis import strategies

from fsyncstorage.quorum.history import fates
from fsyncstorage.quorum.history.fates import Fates
from fsyncstorage.quorum.history.fold import Apply
from fsyncstorage.quorum.history.fold import beginning
from fsyncstorage.quorum.history.fold import step
from fsyncstorage.quorum.history.record import Commit
from fsyncstorage.quorum.history.record import Epoch

from ..generated import given
from ..generated import settings
from ..often import often
from ..support import oid
from .samples import LOG
from .samples import data
from .samples import following

NODE = b'node'.ljust(16)
FIRST = b'the first server'
NEVER = 'it is not committed, and never will be'
NOT_KNOWN = 'nobody knows'


def commit_id(number, server=FIRST, session=b'a'):
    return server + session.ljust(16) + number.to_bytes(4, 'big')


class Log:
    """Records, and those that follow them."""

    def __init__(self):
        self.state = beginning(LOG, 0, 4)
        self._fates = []

    def follow(self):
        """From here on, as a node that has kept this state."""
        self._fates.append(Fates(self.state.server, self.state.named))
        return self._fates[-1]

    def _add(self, body, position=None, **fields):
        applied = step(self.state, following(
            self.state, body, position, **fields))
        assert isinstance(applied, Apply), applied
        self.state = applied.state
        for each in self._fates:
            each.applied(applied)

    def lead(self, server=FIRST):
        epoch = self.state.epoch + 1
        self._add(Epoch(NODE, server), self.state.end, epoch=epoch,
                  writer=epoch.to_bytes(16, 'big'))
        return self

    def commit(self, *commits, whole=True):
        """A batch of these, each an id and a tid; or its first half."""
        self._add(data(
            self.state, b'12345678',
            None if whole else self.state.next + 100,
            [Commit(id, oid(tid)) for id, tid in commits]))
        return self


def told(found, id, since=0):
    try:
        tid = found.of(id, oid(since))
    except LookupError:
        return NOT_KNOWN
    return NEVER if tid is None else int.from_bytes(tid, 'big')


STEPS = strategies.lists(strategies.one_of(
    strategies.just('lead'), strategies.just('follow'),
    strategies.tuples(strategies.booleans(), strategies.lists(
        strategies.sampled_from(b'abc'), min_size=1, max_size=3))),
    max_size=30)


class Histories(unittest.TestCase):
    """What is forgotten is not known, and never answered wrong."""

    level = 2

    def test_of_too_many_epochs(self):
        with mock.patch.object(fates, 'MOST_EPOCHS', 2):
            log = Log()
            found = log.follow()
            log.lead().commit((commit_id(1), 10)).lead(b'2' * 16)
            log.lead(b'3' * 16)
        self.assertEqual(told(found, commit_id(1)), 10)
        self.assertEqual(told(found, commit_id(2)), NOT_KNOWN)
        self.assertEqual(told(found, commit_id(2, b'2' * 16)), NEVER)

    @settings(max_examples=often(150, 3000), deadline=None)
    @given(STEPS)
    def test_no_answer_is_wrong(self, steps):
        with mock.patch.multiple(fates, MOST_SESSIONS=2, REMEMBERED=2):
            self.check(steps)

    def check(self, steps):
        log, tid, number, epoch = Log(), 1, 0, 1
        all_fates = [log.follow()]
        log.lead(epoch.to_bytes(16, 'big'))
        committed, not_committed, half = {}, {}, {}
        for each in [*steps, 'lead']:
            if each == 'follow':
                if not half:  # as only then it is kept
                    all_fates.append(log.follow())
            elif each == 'lead':
                # Another one: what was given up has the same tids again.
                not_committed |= half
                tid -= len(half)
                epoch, half = epoch + 1, {}
                log.lead(epoch.to_bytes(16, 'big'))
            elif not half:
                whole, sessions = each
                batch = {}
                for session in sessions:
                    number, tid = number + 1, tid + 1
                    id = commit_id(number, epoch.to_bytes(16, 'big'),
                                   bytes([session]))
                    batch[id] = tid
                log.commit(*batch.items(), whole=whole)
                if whole:
                    committed |= batch
                else:
                    half = batch
        for found in all_fates:
            for id, expected in committed.items():
                for since in range(expected):
                    self.assertIn(told(found, id, since),
                                  (expected, NOT_KNOWN))
            for id in not_committed:
                for since in range(tid + 1):
                    self.assertIn(told(found, id, since), (NEVER, NOT_KNOWN))
        # Whoever has followed all knows of what is behind the last tid.
        for id in not_committed:
            if id[:16] != bytes(16):
                self.assertEqual(told(all_fates[0], id, tid), NEVER)
