"""One trip, and questions about lost answers, on the stream of a client; with
a server by hand."""

import contextlib
import threading
from unittest import mock

from ZEO.Exceptions import ClientDisconnected

from fsyncstorage.client import stream
from fsyncstorage.client.answer import Unanswered
from fsyncstorage.wire import commits
from fsyncstorage.wire import commitserver as server
from fsyncstorage.wire import sessions

from ..support import PATIENCE
from ..support import Thread
from ..support import oid
from ..support import until
from .test_client_stream import Opened
from .test_client_stream import _Interrupt
from .test_client_stream import interrupts

IN_DOUBT = sessions.in_doubt(bytes(36), bytes(8))


class Trips(Opened):

    def ask_trip(self, number, complete=None):
        thread = Thread(
            self.stream.trip, number, b'', complete or self.complete)
        self.assertEqual(self.peer.next(), server.Trip(number))
        return thread

    def test_done(self):
        number = self.begin()
        trip = self.ask_trip(number)
        self.peer.send(server.done(number, oid(1), 1, 1, oid(7)))
        done = commits.Done(number, oid(1), 1, 1, [oid(7)])
        self.assertEqual(trip.result(), done)
        self.assertEqual(self.completed, [done])
        self.check_it_goes_on()

    def test_an_error(self):
        number = self.begin()
        trip = self.ask_trip(number)
        self.peer.send(server.error(number, b'why'))
        self.assertEqual(trip.result(), commits.Error(number, b'why'))
        self.assertEqual(self.stream._finishes, {})
        self.check_it_goes_on()

    def test_conflicts(self):
        """It can be asked for again; what completed the first one is
        forgotten."""
        number, forgotten = self.begin(), mock.Mock()
        trip = self.ask_trip(number, forgotten)
        self.peer.send(server.conflicts(number, b'which'))
        self.assertEqual(trip.result(), commits.Conflicts(number, b'which'))
        trip = self.ask_trip(number)
        self.peer.send(server.done(number, oid(1), 1, 1))
        trip.result()
        self.assertEqual(len(self.completed), 1)
        forgotten.assert_not_called()

    def test_it_cannot_be_aborted(self):
        number = self.begin()
        trip = self.ask_trip(number)
        self.assertTrue(self.stream.may_be_finished(number))
        self.stream.abort(number)
        self.peer.send(server.done(number, oid(1), 1, 1))
        trip.result()
        self.check_it_goes_on()

    def leave(self, number):
        """A thread is interrupted while it waits."""
        def helper():
            self.assertEqual(self.peer.next(), server.Trip(number))
            until(lambda: 0 in self.stream._turn, 'reading')
            interrupt()

        with interrupts() as interrupt:
            helping = Thread(helper)
            with self.assertRaises(_Interrupt):
                self.stream.trip(number, b'', self.complete)
            helping.result()

    def test_one_that_was_left(self):
        """Whoever reads completes it."""
        number = self.begin()
        self.leave(number)
        self.peer.send(server.done(number, oid(1), 1, 1))
        until(lambda: self.completed, 'completed by another thread')
        self.check_it_goes_on()

    def test_one_that_was_left_and_conflicts(self):
        """Nobody can resolve them: the next transaction brings its abort."""
        number = self.begin()
        self.leave(number)
        self.peer.send(server.conflicts(number, b'which'))
        until(lambda: self.stream._aborts, 'aborted')
        beginning = Thread(self.begin_here)
        self.assertEqual(self.peer.next(), server.Abort(number))
        beginning.result()
        self.assertEqual(self.stream._finishes, {})
        self.peer.send(server.aborted(number))
        until(lambda: self.stream._frames.open == 1, 'over')

    def test_all_places_are_taken_by_such(self):
        """A thread that waits for a place goes on."""
        numbers = [self.begin() for _ in range(commits.MOST_OPEN)]
        for number in numbers[:3]:
            self.leave(number)
        waiting = Thread(self.begin_here)
        until(lambda: self.stream._room._waiters, 'waiting')
        self.peer.send(server.conflicts(numbers[0], b'which'))
        self.assertEqual(self.peer.next(), server.Abort(numbers[0]))
        self.peer.send(server.aborted(numbers[0]))
        waiting.result()

    def test_the_end_behind_its_request(self):
        """Nobody here knows what has become of it."""
        voted = self.begin()
        self.vote(voted)
        for number, ask in ((self.begin(), self.ask_trip),
                            (voted, self.ask_finish)):
            waiting = ask(number)
        self.peer.close()
        with self.assertRaises(Unanswered):
            waiting.result()

    def test_a_goodbye_behind_its_request(self):
        """What was done before is completed; the rest is not committed."""
        first, second = self.begin(), self.begin()
        trips = [self.ask_trip(first), self.ask_trip(second)]
        self.peer.send(server.done(first, oid(1), 1, 1) + server.goodbye()
                       + server.done(second, oid(2), 1, 1))
        self.assertEqual(trips[0].result(), self.completed[0])
        with self.assertRaises(Unanswered):
            trips[1].result()
        self.assertEqual(len(self.completed), 1)
        self.assertTrue(self.stream.is_lost(second))
        self.check_it_has_ended()
        # Also if nobody could complete it.
        self.assertFalse(self.stream.is_lost(first))

    def test_a_goodbye_that_nobody_has_seen(self):
        """The request cannot leave: what has come is looked at."""
        number = self.begin()
        broken = mock.Mock(wraps=self.stream._socket)

        def say_goodbye(data):
            self.peer.send(server.goodbye())
            raise OSError('of a test')

        broken.sendall.side_effect = say_goodbye
        with self.not_read_in_background(), mock.patch.object(
                self.stream, '_socket', broken):
            with self.assertRaises(Unanswered):
                self.stream.trip(number, b'', self.complete)
            self.assertTrue(self.stream.said_goodbye)

    @contextlib.contextmanager
    def not_read_in_background(self):
        go_on, take = threading.Event(), self.stream._background_has_turn
        with mock.patch.object(
                self.stream, '_background_has_turn',
                lambda: go_on.wait(PATIENCE) and take()):
            yield
        go_on.set()

    def test_a_part_of_its_request(self):
        number = self.begin()
        broken = mock.Mock(wraps=self.stream._socket)
        broken.sendall.side_effect = OSError('of a test')
        with mock.patch.object(self.stream, '_socket', broken):
            with self.assertRaises(Unanswered):
                self.stream.trip(number, b'', self.complete)

    def test_an_abort_of_another_one_that_does_not_leave(self):
        """Nothing of this one has left."""
        self.stream._aborts.append(b'an abort')
        broken = mock.Mock(wraps=self.stream._socket)
        broken.sendall.side_effect = OSError('of a test')
        with mock.patch.object(self.stream, '_socket', broken):
            with self.assertRaises(ClientDisconnected) as caught:
                self.begin_here()
        self.assertNotIsInstance(caught.exception, Unanswered)

    def test_the_end_behind_its_answer(self):
        """Another thread completes it, and then finds the end, while this one
        is about to look."""
        class Late(stream.Answer):
            looks = 0

            @property
            def is_there(self):
                self.looks += 1
                return self.looks > 1

            def sleep(self, seconds):
                """Another one has the turn; nobody wakes this one."""

        self.stream.end('enough')
        until(lambda: self.stream._is_over, 'over')
        self.stream._wait(Late())

    def test_the_end_before_its_request(self):
        """Nothing has left: it can be repeated."""
        number = self.begin()
        self.stream.end('enough')
        with self.assertRaises(ClientDisconnected) as caught:
            self.stream.trip(number, b'', self.complete)
        self.assertNotIsInstance(caught.exception, Unanswered)


class Questions(Opened):

    def ask(self, seconds=PATIENCE, complete=lambda outcome: None):
        asking = Thread(self.stream.ask, IN_DOUBT, complete, seconds)
        question = self.peer.next()
        self.assertEqual(question.in_doubt, IN_DOUBT)
        return asking, question.number

    def test_each_answer(self):
        for outcome in (commits.COMMITTED, commits.NOT_COMMITTED,
                        commits.NOT_KNOWN):
            asking, number = self.ask()
            self.peer.send(server.outcome(number, outcome, oid(1)))
            self.assertEqual(
                asking.result(), commits.Outcome(number, outcome, oid(1)))
        self.assertEqual(self.stream._frames._states, {})

    def test_it_is_completed_in_the_order_of_the_stream(self):
        asking, number = self.ask(complete=self.completed.append)
        self.peer.send(server.invalid(oid(1), []) + server.outcome(
            number, commits.COMMITTED, oid(1)) + server.invalid(oid(2), []))
        asking.result()
        until(lambda: len(self.completed) == 3, 'completed')
        self.assertIs(type(self.completed[1]), commits.Outcome)

    def test_an_error_of_what_completes_it(self):
        asking, number = self.ask(complete=lambda outcome: ZeroDivisionError())
        self.peer.send(server.outcome(number, commits.COMMITTED, oid(1)))
        with self.assertRaises(ZeroDivisionError):
            asking.result()
        self.check_it_goes_on()

    def test_it_does_not_wait_without_end(self):
        """A server may be frozen.  What comes later does no harm."""
        asking, number = self.ask(seconds=0.01)
        self.assertIsNone(asking.result())
        self.peer.send(server.outcome(number, commits.NOT_KNOWN, oid(1)))
        self.check_it_goes_on()

    def test_beside_a_thread_that_reads(self):
        number = self.begin()
        voting = self.ask_vote(number)
        until(lambda: 0 in self.stream._turn, 'reading')
        asking, question = self.ask()
        self.peer.send(server.outcome(question, commits.NOT_KNOWN, oid(1)))
        asking.result()
        self.peer.send(server.voted(number, ()))
        voting.result()

    def test_the_end(self):
        asking, _ = self.ask()
        self.peer.close()
        with self.assertRaises(ClientDisconnected):
            asking.result()


class Looking(Questions):
    """A thread that asks looks by itself, if it was not woken."""

    look_again = 0.01

    def test_a_wake_up_that_was_lost(self):
        with mock.patch.object(stream.Answer, 'wake'):
            asking, number = self.ask()
            self.peer.send(server.outcome(number, commits.NOT_KNOWN, oid(1)))
            asking.result()


