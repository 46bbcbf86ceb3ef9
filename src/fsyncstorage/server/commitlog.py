"""Lines about slow commits and about conflicts (`slow-commit-log` and
`conflict-log` of a storage).

A line names the classes of objects, and the users of transactions.  To find
them, the disk may have to be read: a thread does that, and writes the line.
At most `AT_HAND` lines wait for the thread, and each kind of line has an
allowance.  Lines beyond that are counted only, and nothing is read for them.
The names of classes are taken from the records: no class is imported.

A summary of conflicts is written `EVERY` seconds after the first conflict that
it counts, by a timer of the loop.  It names no users.

Everything but the writing of lines belongs to the event loop.  A line that
still waits when the server closes is written; a summary that is not due by
then is not.
"""

import collections
import contextlib
import functools
import logging
import math
import threading

from ZODB.POSException import ConflictError
from ZODB.utils import maxtid
from ZODB.utils import oid_repr

from ..format import classname
from . import quiet
from .threads import Threads

logger = logging.getLogger(__name__)

OFF, SUMMARY, EACH = 'off', 'summary', 'each'

# Seconds that a summary covers; how many objects, and how many clients, are
# counted one by one in it, and how many are named.
EVERY = 60
MOST_COUNTED = 1000
MOST_NAMED = 5
# Characters shown of a user or a description, which a peer has sent.
LONGEST = 100
# This many bytes of UTF-8 are more than LONGEST characters in any case.
LONGEST_ENCODED = 4 * LONGEST + 4
# Module and name of a class.
LONGEST_CLASS = 2 * classname.LONGEST
# Revisions of an object that are searched for the one that is in the way.
MOST_REVISIONS = 10
AT_HAND = 20
# Lines of a kind that may be written at once, and seconds until one more may
# be.  More than for errors (quiet): the operator has asked for these lines.
BURST, INTERVAL = 100, 0.1

logger.addFilter(quiet.say_in_one_line)


class CommitLog:

    def __init__(self, name, storage, loop):
        self._name = name
        self._storage = storage
        self._loop = loop
        #: Seconds from which on a commit is slow.
        self.slow_from = getattr(storage, 'slow_commit_log', 0) or math.inf
        #: Is anything noted for it?
        self.is_on = self.slow_from != math.inf
        self._conflicts = getattr(storage, 'conflict_log', OFF)
        self._thread = Threads(1, f'commit log of {name}')
        self._room = threading.BoundedSemaphore(AT_HAND)
        # For `_closed`, and held while the thread is given a line.
        self._closing = threading.Lock()
        self._closed = False
        self._left_out = 0
        self._slow_lines, self._conflict_lines = (
            quiet.Allowance(BURST, INTERVAL) for _ in range(2))
        self._objects = collections.Counter()
        self._clients = collections.Counter()
        self._number = 0
        #: oid -> the name of its class, as a ConflictError has it.
        self._classes = {}

    def close(self):
        """Write the lines that wait, and no more.  From any thread."""
        with self._closing:
            self._closed = True
        self._thread.shutdown()

    # In the loop

    def slow(self, ballot, tid, now):
        """It was committed, and took long."""
        if self._may_be_written(logging.WARNING, self._slow_lines):
            self._leave_to_the_thread(
                self._say_slow, ballot.client.session.name,
                now - ballot.asked_at, list(ballot.phases(now)),
                len(ballot.oids), ballot.oids[:MOST_NAMED], tid,
                ballot.behind)

    def conflict(self, ballot, error):
        """Its vote has failed with a ConflictError."""
        client, oid = ballot.client.session.name, getattr(error, 'oid', None)
        if self._conflicts == EACH:
            if self._may_be_written(logging.INFO, self._conflict_lines):
                self._leave_to_the_thread(
                    self._say_conflict, client, oid, _changed_by(error),
                    getattr(error, 'class_name', None))
        elif self._conflicts == SUMMARY:
            self._count(client, oid, getattr(error, 'class_name', None))

    def in_the_way(self, ballot, ballots):
        """Return a function that tells which transaction has the objects that
        the ballot waits for; None: that is not known, or not needed."""
        if not self.is_on:
            return None
        found = self._storage.in_the_way(ballot.transaction)
        if found is None:
            return None
        metadata = found.metadata
        label = next((each.client.session.name for each in ballots
                      if each.transaction is metadata), None)
        return functools.partial(_told_of, found, label)

    def _may_be_written(self, level, allowance):
        """May one more line be written?  (A line that the logger's level
        leaves out is not counted as left out.)"""
        if not logger.isEnabledFor(level):
            return False
        if not allowance.take():
            self._left_out += 1
            return False
        return True

    def _leave_to_the_thread(self, say, *arguments):
        if not self._room.acquire(blocking=False):
            self._left_out += 1
            return
        left_out, self._left_out = self._left_out, 0
        with self._closing:
            if self._closed:
                return
            try:
                self._thread.submit(self._say, say, left_out, *arguments)
            except RuntimeError:  # the system has no thread for it
                self._room.release()
                self._left_out = left_out + 1

    def _count(self, client, oid, class_name):
        if not self._number:
            self._loop.call_later(EVERY, self._summarize)
        self._number += 1
        for counter, what in (self._objects, oid), (self._clients, client):
            if what in counter or len(counter) < MOST_COUNTED:
                counter[what] += 1
                if class_name is not None and counter is self._objects:
                    self._classes[oid] = class_name

    def _summarize(self):
        number, self._number = self._number, 0
        objects = self._objects.most_common(MOST_NAMED)
        clients = self._clients.most_common(MOST_NAMED)
        classes, self._classes = self._classes, {}
        self._leave_to_the_thread(
            self._say_summary, number, len(self._objects), objects,
            len(self._clients), clients, classes)
        self._objects.clear()
        self._clients.clear()

    # In the thread

    def _say(self, say, left_out, *arguments):
        self._room.release()
        try:
            say(*arguments)
            if left_out:
                logger.info('%s: %s lines about commits were left out',
                            self._name, left_out)
        except Exception:  # of a storage that is being closed, perhaps
            logger.exception(
                '%s: a line about a commit could not be written', self._name)

    def _say_slow(self, client, seconds, phases, number, oids, tid, behind):
        took = ', '.join(
            f'{what} {duration:.3f} s' for what, duration in phases)
        objects = ', '.join(
            self._object(oid, self._class(oid, tid)) for oid in oids)
        more = ', ...' if number > len(oids) else ''
        logger.warning(
            '%s: the commit %s took %.3f s: %s; of %s objects: %s%s%s',
            client, _hex(tid), seconds, took, number, objects, more,
            '' if behind is None else f'; behind {self._behind(behind)}')

    def _behind(self, behind):
        if isinstance(behind, bytes):
            return self._transaction(behind, self._described(behind))
        tid, described, client = behind
        return self._transaction(tid, described) + (
            '' if client is None else f' of the client {client}')

    def _say_conflict(self, client, oid, tid, class_name):
        if oid is None or tid is None:  # of a storage that is not ours
            logger.info('%s: a conflict: %s', client,
                        self._object(oid, class_name))
            return
        logger.info(
            '%s: a conflict: %s was changed by %s', client,
            self._object(oid, class_name or self._class(oid, tid)),
            self._transaction(tid, self._described_at(oid, tid)))

    def _say_summary(self, number, objects, most_of_all, clients, of_them,
                     classes):
        logger.info(
            '%s: %s conflicts in %s s, at %s objects (%s) of %s clients (%s)',
            self._name, number, EVERY, _or_more(objects), ', '.join(
                f'{count} at ' + self._object(
                    oid, classes.get(oid) or self._class(oid))
                for oid, count in most_of_all),
            _or_more(clients), ', '.join(
                f'{count} of {client}' for client, count in of_them))

    @staticmethod
    def _object(oid, class_name):
        what = 'an object' if oid is None else oid_repr(oid)
        return (f'{what} ({_cut(class_name, LONGEST_CLASS)})' if class_name
                else f'{what} (of no class that can be told)')

    @staticmethod
    def _transaction(tid, described):
        """`described`: the user, and the description; None: not known."""
        text = ('a transaction that was not committed by then' if tid is None
                else f'the transaction {_hex(tid)}')
        if described is None:
            return text
        user, description = (_cut(_text(each)) for each in described)
        return f'{text} of the user {user!r} ({description!r})'

    # What the storage knows

    def _class(self, oid, tid=None):
        """The name of its class in that transaction, or now; or None."""
        with contextlib.suppress(Exception):  # it was deleted, or is damaged
            storage = self._storage
            data = (storage.loadSerial(oid, tid) if tid is not None
                    else storage.loadBefore(oid, maxtid)[0])
            return classname.class_name(data[:classname.ENOUGH])
        return None

    def _described_at(self, oid, tid):
        with contextlib.suppress(Exception):
            for entry in self._storage.history(oid, MOST_REVISIONS):
                if entry['tid'] == tid:
                    return entry['user_name'], entry['description']
        return None

    def _described(self, tid):
        with contextlib.suppress(Exception):
            for transaction in self._storage.iterator(tid, tid):
                return transaction.user, transaction.description
        return None


def _told_of(under_way, client):
    """What a line shows of a transaction; only this is kept for the line, and
    not, for example, all of a long description."""
    described = [_cut(_text(each[:LONGEST_ENCODED]))
                 for each in (under_way.user, under_way.description)]
    return under_way.tid, described, client


def _or_more(number):
    """A number of objects or clients that were counted one by one."""
    return f'{number} or more' if number == MOST_COUNTED else str(number)


def _changed_by(error):
    """The tid of the transaction that it conflicts with; or None."""
    serials = getattr(error, 'serials', None)
    if isinstance(error, ConflictError) and serials:
        return serials[0]
    return None


def _hex(tid):
    return tid.hex() if isinstance(tid, bytes) else repr(tid)[:LONGEST]


def _text(value):
    return (value.decode('utf-8', 'replace') if isinstance(value, bytes)
            else str(value))


def _cut(text, most=LONGEST):
    return text if len(text) <= most else text[:most] + '...'
