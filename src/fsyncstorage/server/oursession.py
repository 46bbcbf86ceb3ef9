"""The server's end of a stream: one client of ours, with all that it asks.

It is a session, as that of a stock client is, and speaks another language: so
calls, iterators, packs, announcements and figures are those of any session.
Otherwise than a stock client, it has several transactions at a time, each of
them a ballot.

An error in one transaction harms no other: the transaction is aborted, and the
client gets the error when it next asks for a vote or a finish.  A frame that
is out of place, or cannot be understood, ends the stream, because nothing
after it can be trusted.

A client names itself by 16 random bytes that nobody else knows, and counts its
streams.  A hello of a later one ends the earlier: its transactions are
aborted, but for those that are finishing.  The answer to a question, what
became of a commit, waits until these are settled; then it is in the file, or
never will be.

All of it runs in the event loop.  Left to others: the frames (frames), what a
transaction stores, and its states (ballot).
"""

import functools
import os

from ZODB.POSException import ReadOnlyError
from ZODB.POSException import StorageTransactionError
from ZODB.utils import z64

from ..storage import outcome as outcomes
from ..wire import frames
from ..wire import values
from ..wire.frames import PeerError
from . import answers
from . import calls
from . import quiet
from .ballot import BEGUN
from .ballot import FINISHING
from .ballot import VOTED
from .clients import said
from .decoding import MOST_CONTAINERS
from .decoding import MOST_STEPS
from .loads import Loading
from .session import Session
from .speech import OurSpeech
from .workers import Dropped

logger = quiet.get_logger(__name__)

# Questions of one client that may wait for their answers.
MOST_QUESTIONS = 1000
# Transactions that are looked at for one question: a second of a processor.
MOST_LOOKED_AT = 100_000

# Seconds for what has changed since a client's last tid.  A client gives its
# server up after 30 seconds: it would never be welcomed, if that took longer.
WELCOME_WITHIN = 20

# The bytes of a mark, by which the readers of a client name it.
MARK = 8

_WORDS = {
    outcomes.COMMITTED: frames.COMMITTED,
    outcomes.NOT_COMMITTED: frames.NOT_COMMITTED,
    outcomes.UNKNOWN: frames.UNKNOWN,
}


class Unwelcome(Exception):
    """A hello is refused.  Its arguments are reason and text."""


class Streams:
    """The streams of the clients of one storage, by the clients' ids."""

    def __init__(self):
        self._open = {}  # id of a client -> OurSession
        self._unsettled = {}  # id of a client -> ballots that finish

    def begin(self, session, id, number):
        earlier = self._open.get(id)
        if earlier is not None:
            if number <= earlier.stream:
                raise Unwelcome(frames.SUPERSEDED,
                                'a later stream of this client is open')
            earlier.end()
        self._open[id] = session

    def end(self, session, finishing):
        if self._open.get(session.client) is session:
            del self._open[session.client]
        if finishing:
            self._unsettled.setdefault(session.client, set()).update(finishing)

    def settled(self, ballot):
        """The session whose questions waited for this last."""
        client = ballot.session.client
        left = self._unsettled.get(client)
        if left is not None:
            left.discard(ballot)
            if not left:
                del self._unsettled[client]
                return self._open.get(client)
        return None

    def are_settled(self, client):
        return client not in self._unsettled


class OurSession(Loading, Session):

    OFFERED = calls.OF_OURS
    #: Its hello.
    client = stream = None
    #: Readers name their client by it; nobody else knows it.
    mark = None

    def __init__(self, server, connection, unregistered):
        super().__init__(server, unregistered.read_only)
        self.connection = connection
        self.log_label = unregistered.log_label
        self._questions = []     # (number, id, since) that wait
        self._asking = 0         # questions that a thread looks for
        self._has_ended = False
        self.reads_locally = False  # until it says that it does

    # The hello

    def meet(self, hello, version):
        """Take the client, which speaks this version; or raise `Unwelcome`."""
        name = hello.storage.decode('utf-8', 'replace')
        if name not in self.server.services:
            raise Unwelcome(
                frames.UNKNOWN_STORAGE,
                f'no storage {name[:100]!r} is served here')
        service = self.server.services[name]
        wants_to_write = not hello.flags & frames.WILL_NOT_WRITE
        may_write = not (self.read_only or service.storage.isReadOnly())
        if wants_to_write and not may_write and not (
                hello.flags & frames.TAKES_READ_ONLY):
            raise Unwelcome(frames.READ_ONLY,
                            'nobody can write here, and this client wants to')
        service.streams.begin(self, hello.client, hello.stream)
        self.client, self.stream = hello.client, hello.stream
        self.connection.speech = OurSpeech(self)
        self.register(name, not (wants_to_write and may_write))
        self.set_client_label(hello.label.decode('utf-8', 'replace'))
        self.version = said(hello.release.decode('utf-8', 'replace'))
        self._welcome(hello.tid, version)

    def _welcome(self, tid, version):
        """With what has changed since this tid.  Later announcements leave
        after it, also if that has to be looked up."""
        service, outbox = self.service, self.connection.outbox
        up_to, place = service.last_tid, outbox.reserve()

        def welcome(known, error):
            if not isinstance(error, Dropped):
                outbox.fill(place, self._welcoming(
                    up_to, version, None if error else known))

        known = service.invalidations_since(tid)
        if known is not None or not service.young_enough(tid):
            welcome(known, None)
        else:
            self._slow_calls.submit(
                welcome, service.look_up_invalidations, tid, up_to,
                WELCOME_WITHIN)

    def _welcoming(self, tid, version, known):
        about = self.get_info()
        about['read_only'] = bool(self.read_only)
        about['changed'] = None if known is None else frames.joined(known[1])
        about['interfaces'] = list(map(list, about['interfaces']))
        about['mark'] = self.mark
        about['lost'] = getattr(self.storage, 'may_have_lost', False)
        handout = self.service.handout
        about['local'] = (handout.about if handout is not None
                          and handout.is_for_clients else None)
        about['readers'] = self.server.readers.read(self.service.name)
        return frames.frame(frames.Welcome(
            0, version, self.server.instance, tid,
            values.encoded(about)))

    def setup_delegation(self):
        super().setup_delegation()
        self.mark = os.urandom(MARK)
        self.server.tallies[self.mark] = self.tally

    # Coming and going

    def turn_away(self):
        raise Unwelcome(frames.TOO_MANY, 'no descriptors are left')

    def end(self):
        """End the client.  Transactions that are finishing go on; no others.

        (Input that was not processed is dropped.  A transaction that a thread
        is voting is aborted when the thread is done, all others at once.)
        """
        self.connection.abort()
        self._end_all()

    def notify_disconnected(self):
        self._end_all()
        super().notify_disconnected()

    def _end_all(self):
        if self._has_ended:
            return
        self._has_ended = True
        # A reader that remains open is counted for no client.
        self.server.tallies.pop(self.mark, None)
        if self.service is not None:
            self.service.streams.end(self, [
                ballot for ballot in self._ballots.values()
                if ballot.state is FINISHING and not ballot.is_settled])
        self.give_up_all()
        self._failures.clear()
        self._questions.clear()

    def say_goodbye(self):
        """The server stops.  Promise that no transaction without an answer is
        committed, or ever will be; but not if one is finishing."""
        may_be_kept = any(
            ballot.state is FINISHING or ballot.is_settled
            for ballot in self._ballots.values())
        self._end_all()
        if not may_be_kept:
            self.say(frames.Goodbye(0))

    # Requests

    def receive(self, body):
        message = frames.taken(body)
        take = _METHODS.get(message.__class__)
        if take is None or not message.number:
            raise PeerError(f'{message.__class__.__name__} from a client')
        take(self, message)

    def _call(self, message):
        self.connection.carry_out(
            message.number, False, message.name.decode('ascii', 'replace'),
            _values(message.arguments, tuple))

    def about_client(self, reads_locally):
        self.reads_locally = bool(reads_locally)

    def pack_status(self):
        return self.service.packs.of_storage.status()

    def pack_cancel(self):
        self._refuse_a_reader()
        self.service.packs.of_storage.cancel()

    def pack_forecast(self, pack_time):
        self._refuse_a_reader()
        answer = answers.Later(self.connection)
        self.service.packs.forecast(self, pack_time, answer)
        return answer

    def _refuse_a_reader(self):
        if self.read_only:
            raise ReadOnlyError()

    def _ping(self, message):
        """In the outbox, the pong is after all that was announced before."""
        self.say(frames.Pong(message.number, self.service.last_tid))

    # A transaction

    def _begin(self, begin):
        if self.read_only:
            raise ReadOnlyError()
        open_ones = self._ballots.keys() | self._failures.keys()
        if begin.number in open_ones or len(open_ones) >= frames.MOST_OPEN:
            raise PeerError(
                f'a begin; {len(open_ones)} transactions are open')
        self.do(begin.number, self._begin_one, begin)

    def _begin_one(self, begin):
        extension = (_values(begin.extension, dict)
                     if begin.extension else None)
        self.begin(
            begin.number, begin.user, begin.description, extension,
            None if begin.tid == z64 else begin.tid, begin.status.decode(),
            begin.id)

    def _operate(self, message):
        """What the ballot takes as the message has it."""
        if ballot := self._begun(message):
            operation = getattr(ballot, _OPERATIONS[message.__class__])
            self.do(ballot.id, operation, *message[1:])

    def _stores(self, message):
        ballot = self._begun(message)
        number = frames.number_of_stores(message.stores)
        if ballot:
            self.do(ballot.id, ballot.batch, message.stores, number)

    def _restore(self, message):
        if ballot := self._begun(message):
            number, oid, serial, source, has_data, data = message
            self.do(number, ballot.restorea, oid, serial,
                    data if has_data else None,
                    None if source == z64 else source)

    def _blob_by_name(self, message):
        if ballot := self._begun(message):
            number, oid, serial, name, record = message
            self.do(number, ballot.storeBlobShared, oid, serial, record,
                    name.decode('ascii', 'replace'))

    def _begun(self, message):
        """The ballot that something is stored in; None if it has failed."""
        if message.number in self._failures:
            return None
        ballot = self._ballots.get(message.number)
        if ballot is None:
            raise PeerError('an operation without a transaction')
        if ballot.state is not BEGUN:
            raise PeerError(f'an operation, already {ballot.state}')
        return ballot

    def _vote(self, message):
        ballot = self._stored(message)
        if ballot is not None:
            self._ask_for_vote(ballot, self._voted)

    def _trip(self, message):
        ballot = self._stored(message)
        if ballot is not None:
            ballot.is_in_one_trip = True
            self._ask_for_vote(ballot, self._voted_on_trip)

    def _ask_for_vote(self, ballot, done):
        self.service.committer.vote(ballot, functools.partial(done, ballot))

    def _stored(self, message):
        """The ballot that is to be voted; None if it cannot be."""
        ballot = self._asked(message, BEGUN)
        if ballot is not None and ballot.half_a_blob:
            self._refuse(ballot, 'a blob has not come completely')
            return None
        return ballot

    def _finish(self, message):
        ballot = self._asked(message, VOTED)
        if ballot is not None:
            self.finish(ballot, ballot.id)

    def _asked(self, message, state):
        """The ballot that is to be voted or finished; None if it cannot be:
        then its client is sent the error."""
        number = message.number
        ballot = self._ballots.get(number)
        if number in self._failures:
            self.connection.send_error(number, self._failures.pop(number))
        elif ballot is None:
            self.connection.send_error(number, StorageTransactionError(
                'this transaction is over, or was not begun'))
        elif ballot.state is FINISHING:
            # It may be committed: an error would be a false answer.
            raise PeerError('a vote or a finish, behind a finish')
        elif ballot.state is not state:
            self._refuse(ballot, f'Already {ballot.state}')
        else:
            return ballot
        return None

    def _refuse(self, ballot, text):
        self.give_up(ballot)
        self.connection.send_error(ballot.id, StorageTransactionError(text))

    def _abort(self, message):
        self._failures.pop(message.number, None)
        ballot = self._ballots.get(message.number)
        if ballot is not None:
            if ballot.state is FINISHING or ballot.is_in_one_trip:
                raise PeerError('an abort, behind a finish')
            self.give_up(ballot)
            self.stats.aborts += 1
        self.say(frames.Aborted(message.number))

    def _voted(self, ballot, result, error):
        if error is None:
            try:
                answer = self._answer_to_vote(ballot, result)
            except Exception as reason:
                error = self._cannot_be_encoded(reason)
            else:
                self.connection.gathers_once_more = True
                self.say(answer)
                return
        self.give_up(ballot)
        self.connection.send_error(ballot.id, error)

    def _voted_on_trip(self, ballot, result, error):
        """Finish it in this same step: nothing can come between the two."""
        if error is None and ballot.state is VOTED:
            try:
                resolved = frames.joined(result)
            except Exception as reason:
                error = self._cannot_be_encoded(reason)
            else:
                self.finish(ballot, ballot.id, resolved)
                return
        self._voted(ballot, result, error)

    def _answer_to_vote(self, ballot, result):
        if ballot.state is BEGUN:
            ballot.is_in_one_trip = False
            return frames.Conflicts(ballot.id, values.encoded(result))
        return frames.Voted(ballot.id, frames.joined(result))

    def _cannot_be_encoded(self, reason):
        """A storage that is not ours returned something other than oids, or
        conflicts that have no encoding."""
        logger.error('%s: the answer to a vote cannot be encoded',
                     self.log_label, exc_info=reason)
        return reason

    # What became of a commit

    def _ask(self, message):
        if len(self._questions) + self._asking >= MOST_QUESTIONS:
            raise PeerError('too many questions')
        self._questions.append(message)
        self._go_on_asking()

    def settled(self, ballot):
        """The outcome of its finish is known, and announced."""
        ballot.is_settled = True
        session = self.service.streams.settled(ballot)
        if session is not None:
            session._go_on_asking()

    def _go_on_asking(self):
        """Look for the answers, unless an earlier stream of this client has
        transactions that finish."""
        if not self.service.streams.are_settled(self.client):
            return
        questions, self._questions = self._questions, []
        for number, id, since in questions:
            if not hasattr(self.storage, 'outcome'):
                self._tell(number, outcomes.Outcome(
                    outcomes.UNKNOWN, None, 'this storage cannot tell'))
                continue
            self._asking += 1
            self.questions.submit(
                functools.partial(self._answered, number),
                self.storage.outcome, id, since, MOST_LOOKED_AT)

    def _answered(self, number, found, error):
        self._asking -= 1
        if isinstance(error, Dropped):
            return
        if error is not None:  # of a storage that is closed, for example
            found = outcomes.Outcome(outcomes.UNKNOWN, None, str(error))
        if found.word == outcomes.UNKNOWN:
            logger.info('%s: what became of a commit is not known: %s',
                        self.log_label, found.reason)
        self._tell(number, found)

    def _tell(self, number, found):
        """Behind the announcement of its own tid."""
        self.connection.outbox.announce(frames.frame(frames.Outcome(
            number, _WORDS[found.word], found.tid or z64,
            found.reason.encode()[:1000])))


def _values(data, kind):
    """Of a client: the loop decodes them, as it does those of stock's."""
    return values.decoded(data, kind, MOST_STEPS, MOST_CONTAINERS)


#: The method of a ballot for each message that is one operation.
_OPERATIONS = {
    frames.Store: 'storea',
    frames.Delete: 'deleteObject',
    frames.Check: 'checkCurrentSerialInTransaction',
    frames.Undo: 'undoa',
    frames.BlobBegin: 'storeBlobStart',
    frames.BlobPiece: 'storeBlobChunk',
    frames.BlobEnd: 'storeBlobEnd',
}

_METHODS = {
    **dict.fromkeys(_OPERATIONS, OurSession._operate),
    frames.Begin: OurSession._begin,
    frames.Stores: OurSession._stores,
    frames.Restore: OurSession._restore,
    frames.BlobByName: OurSession._blob_by_name,
    frames.Vote: OurSession._vote,
    frames.Trip: OurSession._trip,
    frames.Finish: OurSession._finish,
    frames.Abort: OurSession._abort,
    frames.Load: OurSession._load,
    frames.GetBlob: OurSession._get_blob,
    frames.Call: OurSession._call,
    frames.Ask: OurSession._ask,
    frames.Ping: OurSession._ping,
}
