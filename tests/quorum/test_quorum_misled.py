"""A member of the log that is wrong ends no node: a start reads from another
one, and a standby that has followed it begins anew; and its old notes do not
make a dead node look alive.
"""

import threading

from fsyncstorage.quorum.following import follower
from fsyncstorage.quorum.log import members

from ..support import commit
from ..support import oid
from ..support import until
from .fakelog import MEMBERS
from .fakelog import Fault
from .logged import FollowTest
from .logged import Logged
from .logged import take_a_late_record
from .roles import RolesTest
from .samples import LOG
from .wrongmember import EngineWithWrong


class AtAStart(FollowTest):
    """It has lost a record, and has taken that of a late writer."""

    def begin_with(self, wrong):
        self.engine = EngineWithWrong(LOG, wrong=wrong)
        self.logged = Logged(self.engine).lead()
        self.begin()
        take_a_late_record(self.engine)
        self.logged.lead().write(20)

    def test_whichever_it_is_and_wherever_an_answer_is_lost(self):
        """Behind that, another member is read."""
        for wrong in range(MEMBERS):
            for number in range(30):
                with self.subTest(wrong=wrong, number=number):
                    self.begin_with(wrong)
                    self.rejoin(
                        None, *[Fault.NONE] * number, Fault.BEFORE).close()
                    self.assertEqual(self.content(), self.logged.content)
                    self.assertEqual(self.kept().state, self.here().state)


class AStandby(RolesTest):

    def test_it_gets_the_lease_when_it_has_to_begin_anew(self):
        """It gives it back, begins anew, and leads with what a majority has.
        """
        asked = threading.Event()

        def confirmed(log, state):
            asked.set()
            follower.confirmed = members.confirmed
            until(lambda: (self.engine.holder() or b'').startswith(b'b '),
                  'it has the lease')
            return False

        self.both()
        self.patch(follower, confirmed=confirmed)
        with self.assertLogs('fsyncstorage', 'WARNING') as logs:
            tid = commit(self.a.storage, {1: b'x'})
            until(asked.is_set, 'it keeps that')
            self.a.close()
            self.assertEqual(self.b.leads().load(oid(1)), (b'x', tid))
        self.assertIn('begins anew', ''.join(logs.output))
