"""Transactions that are sent again, to the next node of a log.

When a node steps down, or dies, its connections end, and another node goes on
with the same history (docs/internals/quorum.rst).  A transaction whose vote
was not answered is not committed, and no caller relies on it yet.  So the
client sends all of it once more, to the next node, within the same call, and
the application sees a vote that took longer.  The next node checks the serials
of what was written and read: a conflict is still a conflict.

It is known not to be committed

- in two trips, since nothing has asked for its finish;
- in one trip, if nothing of the request has left, or if its own node has said
  goodbye, or if the next node has promised that it is not committed (outcome).

In all other cases nothing is sent again: not after the answer to a vote, and
not to an older or another history.  In addition,

- both servers must say that they are nodes of one log;
- the second one must be another run of a server: a transaction that makes a
  server end its connections is not sent to the same one again;
- the second one must have lost nothing that this client has seen (doom).

By the time when the next connection can be used, the cache was verified, and
the connections of the database were told what others have changed.  The
transaction goes on reading its own state, from before (MVCC).

Each time, it waits for the next node at most as long as the storage waits for
a server (`wait-timeout`).  It is sent again at most `MOST_TIMES` times, so
that a transaction which makes nodes fail does not go from one to the next.

A plain server that was restarted is not such a case.  It may take minutes to
come back, while others that take part in the transaction hold their locks;
nobody could say there what became of commits in one trip; and a client of ZEO
then raises ClientDisconnected at once.
"""

import contextlib
import logging
import time
import typing
from collections.abc import Callable

from ZEO.Exceptions import ClientDisconnected

logger = logging.getLogger(__name__)

MOST_TIMES = 3


class Node(typing.NamedTuple):
    """A server that is a node of a log."""

    log: bytes
    #: The random name of this run of it.
    instance: bytes

    def may_be_followed_by(self, other: 'Node | None') -> bool:
        return (other is not None and other.log == self.log
                and other.instance != self.instance)


def node_of(about: dict[str, typing.Any]) -> Node | None:
    """The Node, from what a server says about itself, which may be anything;
    None: it is no node."""
    log, instance = about.get('log'), about['instance']
    return Node(log, instance) if isinstance(log, bytes) else None


def vote(link: typing.Any, committing: typing.Any) -> typing.Any:
    ends = None
    while True:
        try:
            voted = link.vote_once(committing)
        except ClientDisconnected as lost:
            ends = ends or time.monotonic() + link.timeout
            _begin_again(link, committing, lost, ends)
        except BaseException:
            # It may be kept, or was refused: it must not be sent again.
            committing.keep_no_more()
            raise
        else:
            _say_end(link, committing)
            return voted


def _say_end(link: typing.Any, committing: typing.Any) -> None:
    if committing.lost_since is not None:
        logger.info(
            '%s: a transaction that was sent again has its answer, %.1f s'
            ' after it was lost', link.name,
            time.monotonic() - committing.lost_since)
        committing.lost_since = None


def say(link: typing.Any, committing: typing.Any,
        say: Callable[..., None], *message: typing.Any) -> None:
    """Add a message to a transaction, by `say`, before its vote."""
    try:
        say(*message)
    except ClientDisconnected as lost:
        _begin_again(
            link, committing, lost, time.monotonic() + link.timeout)
        # The time from now on is that of the application.
        committing.lost_since = None


def call_again(timeout: float, under_way: dict[int, typing.Any],
               call: Callable[..., typing.Any], *what: typing.Any
               ) -> typing.Any:
    """Make a call that changes nothing; repeat it if its connection ends.

    If no connection comes in time, no transaction waits for one once more.
    """
    ends = time.monotonic() + timeout
    for _ in range(MOST_TIMES):
        with contextlib.suppress(ClientDisconnected):
            return call(*what, timeout=max(0, ends - time.monotonic()))
    try:
        return call(*what, timeout=max(0, ends - time.monotonic()))
    except ClientDisconnected:
        for committing in list(under_way.values()):
            committing.has_waited = True
        raise


def _begin_again(link, committing, lost, ends):
    """Send all of it to the next node, but for what is gathered until the
    vote.  Raise `lost` if it cannot be sent again."""
    while True:
        stream = _next_stream(link, committing, lost, ends)
        try:
            committing.begin_again(stream)
        except ClientDisconnected as lost_again:
            lost = lost_again
        except OSError as error:  # the kept messages cannot be read
            committing.keep_no_more()
            logger.info('%s: a transaction could not be sent again: %r',
                        link.name, error)
            raise lost from error
        else:
            return


def _next_stream(link, committing, lost, ends):
    if committing.said is None or not link.is_here:
        raise lost
    begun = time.monotonic()
    committing.lost_since = committing.lost_since or begun
    if committing.times_again == MOST_TIMES:
        raise _given_up(link, lost, f'it was, {MOST_TIMES} times')
    ended, committing.has_waited = committing.stream, True
    try:
        stream = link.stream_behind(ended, max(0, ends - time.monotonic()))
    except ClientDisconnected as error:
        raise _given_up(link, lost, error) from None
    if stream is None or not ended.node.may_be_followed_by(stream.node):
        raise _given_up(link, lost, 'what came next is no other node of its'
                                    ' log')
    if link.client.client.falls != committing.falls:
        raise _given_up(link, lost, 'the next node has lost what was seen')
    committing.times_again += 1
    link.repeats.add(time.monotonic() - begun)
    logger.info('%s: a transaction is sent again, to the next node of the'
                ' log: %s', link.name, lost)
    return stream


def _given_up(link, lost, why):
    logger.info('%s: a transaction is not sent again (%s): %s', link.name,
                why, lost)
    return lost
