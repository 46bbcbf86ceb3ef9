"""An interrupt at each line of a commit in one trip, from the vote on."""

import logging
from unittest import mock

import transaction
import ZODB
import ZODB.Connection
from BTrees.Length import Length
from persistent.mapping import PersistentMapping
from transaction.interfaces import TransientError
from ZEO.Exceptions import ClientDisconnected
from ZODB.utils import z64

from fsyncstorage.client.connection import Connection

from ..commit.test_interrupts import Interrupter
from ..often import often
from ..support import until
from .connected import commit
from .test_client_outcome import OutcomeTestCase


class EveryLine(OutcomeTestCase):
    """The commit is there once, or it is not; what the application was told
    is true; and its connection goes on with what the file has."""

    raised = KeyboardInterrupt

    def setUp(self):
        super().setUp()
        self.patch(ZODB.DB, klass=ZODB.Connection.Connection)
        self.client.close()
        self.client = self.connect()
        self.db = ZODB.DB(self.client)
        self.addCleanup(self.db.close)
        self.manager = transaction.TransactionManager()
        self.connection = self.db.open(self.manager)
        self.assertIs(type(self.connection), Connection)
        self.root = self.connection.root()
        self.root['length'] = Length(0)
        self.root['mapping'] = PersistentMapping()
        self.manager.commit()
        self.other, self.serial = self.connect(), z64
        #: What the file has.
        self.length = 0
        self.names = set()

    def at_each_line(self, before=lambda: None):
        at, kept, interrupted = 0, 0, 0
        step = often(9, 1)
        while True:
            at += step
            until(self.client.is_connected, 'connected')
            self.manager.begin()
            self.root['length'].change(1)
            name = f'at {at}'
            self.root['mapping'][name] = PersistentMapping(at=at)
            before()
            interrupter = Interrupter(at, self.raised)
            error, said = self.commit(interrupter)
            kept += self.check(name, error, said)
            if not interrupter.fired:
                break
            interrupted += 1
        self.assertIsNone(error)
        self.assertGreater(kept, 10 // step)
        self.assertGreater(interrupted - kept, 10 // step)

    def commit(self, interrupter):
        """What was raised, and what was said."""
        commit = ZODB.Connection.Connection.commit
        complete = ZODB.Connection.Connection.afterCompletion

        def stored(*args):
            commit(*args)
            interrupter.__enter__()

        def completed(*args):
            interrupter.__exit__()  # nobody can be told any more
            complete(*args)

        handler = Handler()
        logging.getLogger().addHandler(handler)
        error = None
        try:
            with mock.patch.multiple(
                    ZODB.Connection.Connection, commit=stored,
                    afterCompletion=completed):
                self.manager.commit()
        except (Exception, self.raised) as raised:
            error = raised
        finally:
            interrupter.__exit__()
            logging.getLogger().removeHandler(handler)
        return error, handler.said

    def check(self, name, error, said):
        """Was it kept?"""
        self.manager.abort()
        self.until_it_is_over()
        self.manager.begin()
        names = set(self.root['mapping'].keys())
        kept = name in names
        if kept:
            self.names.add(name)
            self.length += 1
            self.assertNotIsInstance(error, TransientError)
            if isinstance(error, self.raised):
                self.assertTrue(said, 'it is kept, in silence')
        else:
            self.assertIsNotNone(error)
        self.assertEqual(names, self.names)
        self.assertEqual(self.root['length'](), self.length)
        with self.db.transaction() as other:
            self.assertEqual(set(other.root()['mapping'].keys()), names)
            self.assertEqual(other.root()['length'](), self.length)
        for each in self.root['length'], self.root['mapping']:
            self.assertEqual(
                each._p_serial, self.storage.load(each._p_oid)[1])
        return kept

    def until_it_is_over(self):
        """Also where nobody waits for it."""
        until(self.pinged, 'connected')
        until(lambda: len(self.sessions()) == 2, 'the one before has ended')
        until(lambda: not self.transactions(), 'no more is voted')
        # It comes behind what is being finished.
        self.serial = commit(self.other, {1 << 20: b'x'}, self.serial)
        until(self.pinged, 'connected')

    def pinged(self):
        try:
            self.client.ping()
        except ClientDisconnected:
            return False
        return self.client.is_connected()


class OfATrip(EveryLine):

    level = 2

    def test_of_a_trip(self):
        self.at_each_line()


class OfMore(EveryLine):

    level = 3

    def test_with_a_conflict_that_the_server_resolves(self):
        self.at_each_line(before=self.change_beside)

    def change_beside(self):
        with self.db.transaction() as other:
            other.root()['length'].change(1000)
        self.length += 1000

    def test_whose_answer_is_lost(self):
        lost = self.done_is_lost()
        self.at_each_line(before=lost.again)


class OfAnotherKind(OfATrip):
    """The handler of a signal may raise anything."""

    raised = TimeoutError


class OfMoreOfAnotherKind(OfMore):

    raised = TimeoutError


class Handler(logging.Handler):

    def __init__(self):
        super().__init__(logging.WARNING)
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())

