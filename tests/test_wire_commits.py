"""The frames of a commit channel, and what may come when."""

import tracemalloc
import unittest
from unittest import mock

from hypothesis import strategies

from fsyncstorage.wire import batch
from fsyncstorage.wire import commits
from fsyncstorage.wire import commitserver as server
from fsyncstorage.wire import framing
from fsyncstorage.wire import plainbegin
from fsyncstorage.wire import sessions

from .generated import given
from .support import oid
from .test_wire import ANNOUNCEMENT
from .test_wire import INSTANCE
from .test_wire import cut
from .test_wire import pieces
from .test_wire import thorough

TICKET = b'a ticket of 16 b'
TID = b'tid56789'
STORES = [(oid(1), TID, b'one'), (oid(2), bytes(8), b''),
          (oid(3), TID, b'the third')]
ID = sessions.commit_id(INSTANCE, TICKET, 258)
IN_DOUBT = sessions.in_doubt(ID, TID)

identifiers = strategies.binary(min_size=8, max_size=8)


def received(client, *data):
    """What it makes of these bytes."""
    found = []
    for each in data:
        client.fill(lambda most, flags: each, 1 << 16)
        while (event := client.next()) is not None:
            found.append(event)
    return found


def opened():
    client = commits.Client(INSTANCE, TICKET)
    received(client, ANNOUNCEMENT, framing.welcome())
    client.moved()
    return client


def in_state(state):
    """A client, and the number of its transaction in that state."""
    client = opened()
    if state is commits.PINGING:
        return client, client.ping()[0]
    if state is commits.ASKING:
        return client, client.ask(IN_DOUBT)[0]
    number, _ = client.begin(b'')
    if state is commits.IN_ONE_TRIP:
        client.trip(number)
    elif state is not commits.BEGUN:
        client.vote(number)
    if state in (commits.IS_VOTED, commits.FINISHING):
        received(client, server.voted(number, ()))
    if state is commits.FINISHING:
        client.finish(number)
    if state is commits.ABORTING:
        client.abort(number)
    return client, number


STATES = (commits.BEGUN, commits.VOTING, commits.IS_VOTED, commits.FINISHING,
          commits.IN_ONE_TRIP, commits.ABORTING, commits.PINGING,
          commits.ASKING)

#: The replies to a number, and the states in which they may come.
REPLIES = {
    'voted': (lambda number: server.voted(number, [oid(1)]),
              {commits.VOTING, commits.ABORTING}),
    'conflicts': (lambda number: server.conflicts(number, b'message'),
                  {commits.VOTING, commits.IN_ONE_TRIP, commits.ABORTING}),
    'error': (lambda number: server.error(number, b'message'),
              {commits.VOTING, commits.FINISHING, commits.IN_ONE_TRIP,
               commits.ABORTING}),
    'done': (lambda number: server.done(number, TID, 1, 2),
             {commits.FINISHING, commits.IN_ONE_TRIP}),
    'done with oids': (lambda number: server.done(number, TID, 1, 2, oid(1)),
                       {commits.IN_ONE_TRIP}),
    'aborted': (server.aborted, {commits.ABORTING}),
    'pong': (lambda number: server.pong(number, TID), {commits.PINGING}),
    'outcome': (lambda number: server.outcome(number, 1, TID),
                {commits.ASKING}),
}


class Hellos(unittest.TestCase):

    def message(self):
        hello = sessions.hello(INSTANCE, TICKET)
        self.assertEqual(int.from_bytes(hello[:4], 'big'), len(hello) - 4)
        return hello[4:]

    def test_there_and_back(self):
        self.assertTrue(sessions.is_hello(self.message()))
        self.assertEqual(sessions.read_hello(self.message()),
                         (sessions.VERSION, INSTANCE, TICKET))

    def test_of_another_version_only_the_version_counts(self):
        self.assertEqual(sessions.read_hello(sessions.MAGIC + b'\7whatever'),
                         (7, None, None))

    def test_every_other_length(self):
        message = self.message()
        for wrong in *(message[:length] for length in range(
                len(sessions.MAGIC), len(message))), message + b'x':
            with self.assertRaises(framing.PeerError):
                sessions.read_hello(wrong)


class Requests(unittest.TestCase):

    def test_there_and_back(self):
        client = opened()
        number, begin = client.begin(b'a call')
        plain, begin_plain = client.begin(
            plainbegin.pack(b'user', b'text'), commits.BEGIN_PLAIN)
        sent = [
            (begin, server.Begin(number, b'a call')),
            (begin_plain, server.BeginPlain(plain, b'user', b'text')),
            (client.store(number, oid(1), TID, b'data'),
             server.Store(number, b'data', oid(1), TID)),
            (client.stores(number, STORES),
             server.Stores(number, batch.pack(STORES), 3)),
            (client.call(number, b'another'),
             server.Call(number, b'another')),
            (client.vote(number), server.Vote(number)),
            (client.abort(number), server.Abort(number)),
        ]
        ping, frame = client.ping()
        sent.append((frame, server.Ping(ping)))
        question, frame = client.ask(IN_DOUBT)
        sent.append((frame, server.Ask(question, IN_DOUBT)))
        client, number = in_state(commits.BEGUN)
        sent.append((client.trip(number), server.Trip(number)))
        client, number = in_state(commits.IS_VOTED)
        sent.append((client.finish(number), server.Finish(number)))
        for frame, request in sent:
            with self.subTest(request):
                length = int.from_bytes(frame[:4], 'big')
                self.assertEqual(length, len(frame) - 4)
                found = server.request(frame[4:])
                self.assertEqual(found, request)
                self.assertIs(type(found), type(request))

    def test_every_length_that_no_request_has(self):
        client = opened()
        number, begin = client.begin(b'')
        store = client.store(number, oid(1), TID, b'')
        stores = client.stores(number, STORES)
        vote = client.vote(number)
        for frame in begin, store, stores, vote:
            for length in range(4, len(frame)):
                with self.assertRaises(framing.PeerError):
                    server.request(frame[4:length])
        for frame in stores, vote:
            with self.assertRaises(framing.PeerError):
                server.request(frame[4:] + b'x')

    def test_a_begin_that_is_too_long(self):
        """No copy is made of it."""
        most = server.MOST_OF_A_BEGIN
        for kind, made in (commits.BEGIN, server.Begin), (
                commits.BEGIN_PLAIN, server.BeginPlain):
            number, frame = opened().begin(bytes(most), kind)
            self.assertIsInstance(server.request(frame[4:]), made)
            number, frame = opened().begin(bytes(most + 1), kind)
            message = frame[4:]
            tracemalloc.start()
            try:
                request = server.request(message)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            self.assertEqual(request, server.BeginTooLong(number, most + 1))
            self.assertLess(peak, most // 4)

    @given(strategies.binary(max_size=60))
    @thorough
    def test_rubbish(self, rubbish):
        try:
            request = server.request(rubbish)
        except framing.PeerError:
            return
        self.assertEqual(rubbish[0], b'BNSMCVFTAPQ'[
            (server.Begin, server.BeginPlain, server.Store, server.Stores,
             server.Call, server.Vote, server.Finish, server.Trip,
             server.Abort, server.Ping, server.Ask).index(type(request))])

    def test_an_abort(self):
        for state in STATES[:3]:
            client, number = in_state(state)
            self.assertIsNotNone(client.abort(number))
            self.assertIs(client.state(number), commits.ABORTING)
        for state in (commits.FINISHING, commits.IN_ONE_TRIP,
                      commits.ABORTING):
            client, number = in_state(state)
            self.assertIs(client.is_finishing(number),
                          state is not commits.ABORTING)
            self.assertIsNone(client.abort(number))
            self.assertIs(client.state(number), state)
        self.assertIsNone(opened().abort(7))  # it is over

    def test_one_that_cannot_begin_takes_no_place(self):
        client = opened()
        with mock.patch.object(framing, 'LONGEST', 10):
            with self.assertRaises(framing.CallerError):
                client.begin(bytes(10))
        self.assertEqual(client.open, 0)
        client.begin(b'')
        client.ping()
        self.assertEqual(client.open, 2)


class Batches(unittest.TestCase):

    @given(strategies.lists(strategies.tuples(
        identifiers, identifiers, strategies.binary(max_size=40)), min_size=1))
    @thorough
    def test_there_and_back(self, stores):
        message = batch.pack(stores)
        self.assertEqual(batch.size(message), len(stores))
        self.assertEqual(list(batch.stores(message)), stores)
        self.assertEqual(len(message), 4 + sum(
            batch.OVERHEAD + len(data) for _, _, data in stores))

    @given(strategies.binary(max_size=100))
    @thorough
    def test_rubbish(self, rubbish):
        try:
            size = batch.size(rubbish)
        except framing.PeerError:
            return
        stores = list(batch.stores(rubbish))
        self.assertEqual((len(stores), batch.pack(stores)), (size, rubbish))

    def test_what_is_none(self):
        message = batch.pack(STORES)
        for wrong in (
                bytes(4),  # no stores
                b'\xff' * 4 + message[4:],  # four milliards
                b'\0\0\0\4' + message[4:],
                b'\0\0\0\2' + message[4:],
                message[:4] + b'\0\0\0\1' + message[8:],
                message[:4] + b'\xff' * 4 + message[8:],
                batch.pack([(oid(1), TID, bytes(batch.LONGEST))])):
            with self.assertRaises(framing.PeerError):
                batch.size(wrong)
        self.assertEqual(batch.size(message), 3)


class Replies(unittest.TestCase):

    def exchange(self):
        """A client that waits for all kinds of replies, these, and what it
        has to make of them."""
        client = commits.Client(INSTANCE, TICKET)
        client.moved()
        numbers = [client.begin(b'')[0] for _ in range(5)]
        for number in numbers:
            client.vote(number)
        client.abort(5)
        ping, _ = client.ping()
        replies = [
            (ANNOUNCEMENT, []),
            (framing.welcome(), [commits.Welcome()]),
            (server.voted(2, ()), [commits.Voted(2, [])]),
            (server.voted(1, [oid(1), oid(2)]),
             [commits.Voted(1, [oid(1), oid(2)])]),
            (server.invalid(oid(1), [oid(8)]),
             [commits.Invalid(oid(1), [oid(8)])]),
            (server.conflicts(3, b'conflicts'),
             [commits.Conflicts(3, b'conflicts')]),
            (server.error(4, b'error'), [commits.Error(4, b'error')]),
            (server.voted(5, ()), []),  # its abort was under way
            (server.aborted(5), [commits.Aborted(5)]),
            (server.invalid(oid(2), []), [commits.Invalid(oid(2), [])]),
            (server.pong(ping, oid(2)), [commits.Pong(ping, oid(2))]),
        ]
        return (client, b''.join(frame for frame, _ in replies),
                [each for _, events in replies for each in events])

    @given(pieces)
    @thorough
    def test_there_and_back(self, lengths):
        client, sent, expected = self.exchange()
        got = received(client, *(each for each in cut(sent, lengths) if each))
        self.assertEqual(got, expected)
        self.assertEqual([type(each) for each in got],
                         [type(each) for each in expected])

    @given(strategies.lists(strategies.integers(0, 3)), pieces)
    @thorough
    def test_together(self, numbers, lengths):
        """Announcements that come one after the other; all else alone."""
        client, ping = in_state(commits.PINGING)
        invalids = [commits.Invalid(oid(tid), [oid(1)] * number)
                    for tid, number in enumerate(numbers, 1)]
        sent = b''.join(server.invalid(*each) for each in invalids)
        pong = server.pong(ping, TID)
        got = []
        for each in cut(sent + pong, lengths):
            client.fill(lambda most, flags: each, 1 << 16)
            while events := client.next_together():
                self.assertTrue(len(events) == 1 or {commits.Invalid} == {
                    type(event) for event in events})
                got += events
        self.assertEqual(got, [*invalids, commits.Pong(ping, TID)])

    def test_what_comes_before_damage(self):
        """It is given out first: it was kept by the server."""
        for wrong in (server.invalid(oid(2), []),  # it does not rise
                      server.invalid(oid(3), []).replace(b'\x0d', b'\x0e')
                      + b'x',
                      server.pong(7, TID), b'\xff' * 20,
                      b'\0\0\0\5i\0\0\0\0'):
            with self.subTest(wrong):
                client = opened()
                data = (server.invalid(oid(1), [oid(1)])
                        + server.invalid(oid(2), []) + wrong)
                client.fill(lambda most, flags: data, 1 << 16)
                self.assertEqual(
                    client.next_together(),
                    [commits.Invalid(oid(1), [oid(1)]),
                     commits.Invalid(oid(2), [])])
                with self.assertRaises(framing.PeerError):
                    client.next_together()

    def test_every_cut_gives_a_beginning(self):
        _, sent, expected = self.exchange()
        for length in range(len(sent)):
            client, _, _ = self.exchange()
            got = received(client, sent[:length])
            self.assertEqual(got, expected[:len(got)])
            self.assertLess(len(got), len(expected))

    def test_only_where_it_is_waited_for(self):
        for name, (make, states) in REPLIES.items():
            for state in STATES:
                with self.subTest(name, state=state):
                    client, number = in_state(state)
                    if state in states:
                        received(client, make(number))
                    else:
                        self.refuse(client, make(number))
            self.refuse(opened(), make(7))
            self.refuse(opened(), make(0))

    def refuse(self, client, data):
        with self.assertRaises(framing.PeerError):
            received(client, data)

    def test_the_end_of_a_transaction(self):
        for state, name in ((commits.VOTING, 'error'),
                            (commits.FINISHING, 'error'),
                            (commits.FINISHING, 'done'),
                            (commits.IN_ONE_TRIP, 'error'),
                            (commits.IN_ONE_TRIP, 'done'),
                            (commits.ABORTING, 'aborted'),
                            (commits.PINGING, 'pong'),
                            (commits.ASKING, 'outcome')):
            client, number = in_state(state)
            received(client, REPLIES[name][0](number))
            self.assertIsNone(client.state(number))

    def test_a_trip_that_conflicts(self):
        """It is begun again: it can be stored, repeated, or aborted."""
        client, number = in_state(commits.IN_ONE_TRIP)
        received(client, server.conflicts(number, b'which'))
        self.assertIs(client.state(number), commits.BEGUN)
        client.store(number, oid(1), TID, b'')
        client.trip(number)
        received(client, server.conflicts(number, b'which'))
        self.assertIsNotNone(client.abort(number))

    def test_a_goodbye(self):
        """In each state of a transaction, but to none."""
        for state in STATES:
            client, number = in_state(state)
            self.assertEqual(
                received(client, server.goodbye()), [commits.Goodbye()])
            self.refuse(client, server.goodbye()[:-4] + number.to_bytes(
                4, 'big'))
        waiting = commits.Client(INSTANCE, TICKET)
        self.assertEqual(
            received(waiting, ANNOUNCEMENT, framing.welcome(),
                     server.goodbye()), [commits.Welcome()])
        self.refuse(commits.Client(INSTANCE, TICKET),
                    ANNOUNCEMENT + server.goodbye())

    def test_every_outcome(self):
        for outcome in range(256):
            client, number = in_state(commits.ASKING)
            frame = server.outcome(number, outcome, TID)
            if outcome in (commits.COMMITTED, commits.NOT_COMMITTED,
                           commits.NOT_KNOWN):
                self.assertEqual(received(client, frame), [
                    commits.Outcome(number, outcome, TID)])
            else:
                self.refuse(client, frame)

    def test_nothing_before_the_other_connection_is_done(self):
        client = commits.Client(INSTANCE, TICKET)
        got = received(client, ANNOUNCEMENT, framing.welcome(),
                       server.invalid(TID, [oid(1)]))
        self.assertEqual(got, [commits.Welcome()])
        client.moved()
        self.assertEqual(client.next(), commits.Invalid(TID, [oid(1)]))

    def test_tids_rise(self):
        for tids in (2, 1), (2, 2):
            client, number = in_state(commits.FINISHING)
            received(client, server.invalid(oid(2), []))
            self.refuse(client, server.invalid(oid(tids[1]), []))
            client, number = in_state(commits.FINISHING)
            received(client, server.invalid(oid(2), []))
            self.refuse(client, server.done(number, oid(tids[1]), 1, 1))

    def test_a_refusal(self):
        client = commits.Client(INSTANCE, TICKET)
        got = received(client, ANNOUNCEMENT, framing.refused(5, 'why'))
        self.assertEqual(got, [commits.Refused(5, 'why')])
        self.refuse(client, framing.welcome())

    def test_no_zeo_server(self):
        for said in b'Z4', b'Z55', b'', framing.welcome()[4:]:
            self.refuse(commits.Client(INSTANCE, TICKET),
                        len(said).to_bytes(4, 'big') + said)

    def test_a_long_frame_before_it_is_open(self):
        """Nothing of it is kept."""
        for said in (), (ANNOUNCEMENT,):
            client = commits.Client(INSTANCE, TICKET)
            received(client, *said)
            self.refuse(client, (commits.LONGEST_GREETING + 1).to_bytes(
                4, 'big'))

    def test_lengths(self):
        client, number = in_state(commits.FINISHING)
        for frame in (b'\xff' * 4, b'\0\0\0\4iiii', b'\0\0\0\0'):
            self.refuse(in_state(commits.FINISHING)[0], frame)
        for frame in (server.done(number, TID, 1, 2),
                      server.invalid(TID, [oid(1)])):
            for length in range(5, len(frame)):
                if (length - 4 - 13) % 8 or frame[4:5] == b'd':
                    self.refuse(
                        in_state(commits.FINISHING)[0],
                        (length - 4).to_bytes(4, 'big') + frame[4:length])

    @given(strategies.data())
    @thorough
    def test_no_damage_goes_beyond_the_protocol(self, data):
        client, sent, _ = self.exchange()
        damaged = bytearray(sent)
        for _ in range(data.draw(strategies.integers(1, 4))):
            at = data.draw(strategies.integers(0, len(sent) - 1))
            damaged[at] = data.draw(strategies.integers(0, 255))
        try:
            for event in received(client, bytes(damaged)):
                if hasattr(event, 'number'):
                    self.assertIn(event.number, range(1, 7))
        except framing.PeerError:
            pass


class TheFormat(unittest.TestCase):
    """As docs/internals/commitchannel.rst has it: both sides could change it,
    and every other test would pass."""

    def check(self, frame, *parts):
        self.assertEqual(frame, b''.join(parts))

    def test_of_the_client(self):
        client = opened()
        number = b'\0\0\0\1'
        self.check(client.hello, b'\0\0\0\x29', b'\xf5COMMITS', b'\5',
                   INSTANCE, TICKET)
        self.check(client.begin(b'call')[1],
                   b'\0\0\0\x09', b'B', number, b'call')
        self.check(client.store(1, b'oid56789', TID, b'data'),
                   b'\0\0\0\x19', b'S', number, b'oid56789', TID, b'data')
        self.check(client.call(1, b'call'),
                   b'\0\0\0\x09', b'C', number, b'call')
        self.check(client.vote(1), b'\0\0\0\5', b'V', number)
        self.check(client.ping()[1], b'\0\0\0\5', b'P', b'\0\0\0\2')
        self.check(client.ask(IN_DOUBT)[1], b'\0\0\0\x31', b'Q',
                   b'\0\0\0\3', INSTANCE, TICKET, b'\0\0\1\2', TID)
        received(client, server.voted(1, ()))
        self.check(client.finish(1), b'\0\0\0\5', b'F', number)
        client, _ = in_state(commits.BEGUN)
        self.check(client.trip(1), b'\0\0\0\5', b'T', number)
        self.check(
            client.begin(plainbegin.pack(b'me', b'text'),
                         commits.BEGIN_PLAIN)[1],
            b'\0\0\0\x0d', b'N', b'\0\0\0\2', b'\0\2', b'metext')
        client, _ = in_state(commits.VOTING)
        self.check(client.abort(1), b'\0\0\0\5', b'A', number)

    def test_of_the_server(self):
        number = b'\0\0\1\2'
        self.check(server.voted(258, [oid(1), oid(2)]),
                   b'\0\0\0\x15', b'v', number, oid(1), oid(2))
        self.check(server.conflicts(258, b'reply'),
                   b'\0\0\0\x0a', b'k', number, b'reply')
        self.check(server.error(258, b'reply'),
                   b'\0\0\0\x0a', b'e', number, b'reply')
        self.check(server.done(258, TID, 3, 4),
                   b'\0\0\0\x1d', b'd', number, TID, oid(3), oid(4))
        self.check(server.done(258, TID, 3, 4, oid(1) + oid(2)),
                   b'\0\0\0\x2d', b'd', number, TID, oid(3), oid(4),
                   oid(1), oid(2))
        self.check(server.outcome(258, 2, TID),
                   b'\0\0\0\x0e', b'o', number, b'\2', TID)
        self.check(server.aborted(258), b'\0\0\0\5', b'a', number)
        self.check(server.invalid(TID, [oid(1)]),
                   b'\0\0\0\x15', b'i', bytes(4), TID, oid(1))
        self.check(server.pong(258, TID), b'\0\0\0\x0d', b'p', number, TID)
        self.check(server.goodbye(), b'\0\0\0\5', b'g', bytes(4))
