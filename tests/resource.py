"""Another resource of a transaction, before its databases or behind them.

Behind them it is the last one to vote, so a commit of our client takes two
trips.
"""

from transaction.interfaces import TransientError

#: Sort keys.
BEFORE, BEHIND = ' ', '~'


class Refused(TransientError):
    """Its vote."""


class Resource:

    def __init__(self, place, refuses=False):
        self._place = place
        self._refuses = refuses

    def sortKey(self):
        return self._place

    def tpc_vote(self, transaction):
        if self._refuses:
            raise Refused

    def abort(self, transaction):
        """There is nothing to do."""

    tpc_begin = commit = tpc_finish = tpc_abort = abort
