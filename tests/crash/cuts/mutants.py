"""Clients and servers that do not tell the truth.

    python -m tests.crash.cuts.mutants MUTANT ARGUMENTS
"""

import sys

from fsyncstorage.client import outcome
from fsyncstorage.server import outcomes
from fsyncstorage.wire import commits

from . import client
from . import server


def command(mutant):
    """Of a process."""
    return __name__, mutant.__name__


def pessimist(*args):
    """A client: a commit whose answer was lost has failed."""
    def check_kept(link, committing, lost):
        raise lost

    outcome.check_kept = check_kept
    client.main(*args)


def hasty(*args):
    """A server: it promises while the old session goes on."""
    def ask(self, ticket, number, tell):
        if ticket in self._channels:
            self._channels[ticket].record.ask(number, tell)
        else:
            ask_it(self, ticket, number, tell)

    ask_it = outcomes.Outcomes.ask
    outcomes.Outcomes.ask = ask
    server.main(*args)


def forgetful(*args):
    """A server: it does not know of what it still finishes."""
    def end(self, aborted, finishing, now):
        end_it(self, aborted, (), now)

    end_it = outcomes.Record.end
    outcomes.Record.end = end
    server.main(*args)


def obliging(*args):
    """A server: what is not committed, it says is."""
    def outcome(self, number):
        found, tid = outcome_of(self, number)
        if found == commits.NOT_COMMITTED:
            return commits.COMMITTED, tid
        return found, tid

    outcome_of = outcomes.Record._outcome
    outcomes.Record._outcome = outcome
    server.main(*args)


if __name__ == '__main__':
    globals()[sys.argv[1]](*sys.argv[2:])
