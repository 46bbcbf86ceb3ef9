"""What became of a commit whose answer was lost.

The request to finish it has left, or a part of it, and then the commit channel
has ended.  An application that got ClientDisconnected would retry, and would
commit twice if the commit was kept.

A server that is stopped says goodbye: a commit that it has not answered is not
kept.  Otherwise the thread waits for the next connection, and asks there.
There are three results:

- It is kept: the commit goes on, with its tid, as if it had been answered.
- It is not kept, and never will be: ClientDisconnected, and it can be retried.
- Nobody knows: OutcomeUnknown.  The server was killed, or is another one
  that has no log of the commits of the first, or has forgotten it; or no
  connection was made in time; or the next one has no commit channel; or the
  storage was closed.

This takes at most as long as the storage waits for a server (`wait-timeout`),
by the monotonic clock of the process.  A thread that is interrupted while it
waits leaves.

The next connection may lead to another server: with several addresses, or
through a proxy.  The answer "not committed" is a promise, and only a server
that can keep it gives it; any other says that it does not know.

Over the ZEO connection nothing can be asked.  A stock client gets
ClientDisconnected there, and so does this one.  But if it was this client, or
its system, that gave the server up, then nobody knows: the server may only
have been slow, or the network away.
"""

import contextlib
import logging
import time

from transaction.interfaces import TransientError
from ZEO.Exceptions import ClientDisconnected

from ..errors import OutcomeUnknown
from ..wire import commits
from .answer import Unanswered
from .liveness import Silent

logger = logging.getLogger(__name__)


def finish(link, committing, finishing, ask):
    """Return what `ask` returns, also if its answer was lost and the
    transaction is kept.

    `ask` sends a finish, or a vote that finishes.
    """
    committing.finishing = finishing
    try:
        return _answer_to_finish(link, committing, ask)
    except TransientError as error:
        finishing.refuse_repeating(error)
        raise
    except OutcomeUnknown:
        raise
    except BaseException:
        if committing.may_be_kept:
            logger.warning(
                '%s: a thread was interrupted while its commit was under'
                ' way: the server may keep it', link.name)
        raise
    finally:
        finishing.is_left = True


def _answer_to_finish(link, committing, ask):
    try:
        return ask(committing.finishing.complete)
    except Unanswered as lost:
        return check_kept(link, committing, lost)


def check_kept(link, committing, lost):
    """If it is kept, return the oids that the server has resolved, or None if
    they are not known.  Raise if it is not kept, or if nobody knows."""
    finishing = committing.finishing
    if finishing.tid is None and committing.stream.is_lost(committing.number):
        raise lost
    committing.has_waited = True
    outcome = None
    # Another thread may have completed its Done, or the Outcome, although the
    # stream was over for this thread.
    if not finishing.is_complete:
        logger.warning(
            '%s: the answer to a commit was lost (%s): it waits, for up to'
            ' %g s, to ask whether it was kept', link.name, lost, link.timeout)
        try:
            outcome = _ask(link, committing)
        except Exception as error:
            if finishing.tid is None:
                raise _unknown(error) from lost
    if finishing.tid is not None:
        finishing.check()
        return finishing.resolved
    if outcome is None or outcome.outcome != commits.NOT_COMMITTED:
        raise _unknown('the server does not know it') from lost
    raise lost


def _ask(link, committing):
    """The Outcome; None: it did not arrive in time."""
    ends = time.monotonic() + link.timeout
    stream = committing.stream
    while True:
        try:
            stream = link.stream_behind(
                stream, max(0, ends - time.monotonic()))
            if stream is None:
                raise LookupError('the next connection has no commit channel')
            return stream.ask(
                committing.in_doubt, committing.finishing.learn,
                ends - time.monotonic())
        except ClientDisconnected:
            # That stream has ended, too.
            if (committing.finishing.tid is not None or link.is_closed()
                    or time.monotonic() >= ends):
                raise


@contextlib.contextmanager
def unknown_behind_silence():
    """Around a finish over the ZEO connection."""
    try:
        yield
    except ClientDisconnected as lost:
        if lost.args and isinstance(lost.args[0], Silent):
            raise _unknown(lost.args[0]) from lost
        raise


def _unknown(reason):
    return OutcomeUnknown(
        f'the connection was lost while this commit was under way, and nobody'
        f' can say whether it was kept ({reason}). Look for what it has'
        f' changed before you repeat it')
