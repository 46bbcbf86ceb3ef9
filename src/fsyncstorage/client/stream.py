"""The commit channel of a client: one stream, used by several threads.

A thread that wants an answer sends its request, and reads the stream itself
until the answer has come.  The thread that reads has the *turn*.  It completes
each message, also those for other threads, before it takes the next one: so
the cache and the connections change in the order of the stream.

- A thread that finds the turn taken sleeps until it is woken: by its answer,
  or because the turn is free.  It also wakes up now and then to look, in case
  the thread that should have woken it was interrupted.
- When no thread waits for an answer, a background reader reads what comes.
  While a thread waits, the background reader is not even woken.
- A thread that still sends does not read, and is not woken to read.
- What a request changes here reaches the server, or the stream ends: a thread
  that is interrupted before its request has left ends the stream.
- Other interrupts leave the stream as it is, but for one in the middle of
  completing a message, and with TLS of receiving.
- A stream that ends takes no more requests.  Messages that have arrived are
  still completed: what they tell of is committed, in this order.  Then the
  stream is *over*, and all threads that still wait get `Unanswered`.  After a
  message that cannot be understood, or completed, it is over at once.
- The connection belongs to the process that opened it.

The invariant of the turn: while it is free, the watch is armed, or a thread is
awake that looks at the turn before it sleeps.  The reasons, for each order of
events, are in docs/internals/commitchannel.rst.

Left to others: the frames (wire.commits), what completes a message (link),
the messages of one transaction (committing), what became of a commit that was
not answered (outcome), when something comes (watch).
"""

import collections
import contextlib
import socket
import threading
import time

from ZEO.Exceptions import ClientDisconnected

from ..wire import commits
from .answer import Answer
from .answer import Unanswered
from .answer import UntilSent
from .process import Process
from .tlsconnection import TLSConnection
from .watch import Watch

RECEIVED_AT_ONCE = 1 << 16
# Seconds after which a thread that waits looks again, unwoken.
LOOK_AGAIN = 1
# Seconds that `close` waits for the background reader to end.
END_WITHIN = 9
# Bytes that are kept until the stream is open.
MOST_BEFORE_OPEN = 64 << 20

CLOSED = 'the server has closed it'
COMPLETED = commits.Done, commits.Outcome

# The background reader, as holder of the turn: a thread's is its Answer.
_BACKGROUND = object()


class Stream:

    #: When it is over: the last tid that came on it.
    last_tid = None
    #: Its server has stopped: a finish without an answer is not committed.
    said_goodbye = False
    #: The cache may be half changed.
    is_broken = False
    #: It was ended because a thread of this process was interrupted.
    was_interrupted = False

    def __init__(self, connection, frames, encoding, complete, on_end):
        """`connection` is a channel that was welcomed.

        `complete` is called with one Invalid or several, in the order of the
        stream; `on_end` with the stream, from any thread, perhaps repeatedly.
        """
        #: The protocol version by which ZEO encodes messages.
        self.encoding = encoding
        self._process = Process('commit channel')
        self._socket = connection
        self._frames = frames
        self._complete_invalid = complete
        self._on_end = on_end
        self._states = threading.Lock()  # of `_frames`
        self._sending = threading.Lock()
        self._completing = threading.Lock()
        #: For those that wait until it is open, or until fewer transactions
        #: are.  (Always `with` the lock itself: see `blobs.arriving`.)
        self._room_lock = threading.RLock()
        self._room = threading.Condition(self._room_lock)
        #: The holder of the turn, as the value of 0: one step takes it.
        self._turn = {0: _BACKGROUND}  # until it is open
        self._answers = {}   # number -> Answer
        self._finishes = {}  # number -> what completes a Done or an Outcome
        #: Frames to abort transactions that their threads have left; the next
        #: transaction sends them, since the holder of the turn sends nothing.
        self._aborts = collections.deque()
        #: None: it takes requests.
        self.end_reason = None
        self._is_over = False  # nothing more is completed
        self._reasons = []  # several, if threads end it at the same time
        self._is_open = False
        self._watch = Watch(connection)
        self._background = threading.current_thread()

    # Requests, from any thread

    def check(self):
        self._process.check()
        if self.end_reason is not None:
            raise ClientDisconnected(self.end_reason)

    def begin(self, transaction, *first):
        """Set the number of a new transaction; return its first frame."""
        self.check()
        while True:
            self._send_aborts()
            with self._room_lock:
                if self._has_room():
                    # If the number were made and not kept, nobody could free
                    # its place: an interrupt in between ends the stream.
                    with UntilSent(self), self._states:
                        transaction.number, frame = self._frames.begin(*first)
                    return frame
                self._room.wait(LOOK_AGAIN)

    def _send_aborts(self):
        while self._aborts:
            with UntilSent(self), contextlib.suppress(IndexError):
                self._send(self._aborts.popleft())

    def _has_room(self):
        self.check()
        with self._states:
            return self._is_open and self._frames.open < commits.MOST_OPEN

    def stores(self, *args):
        with self._states:
            return self._frames.stores(*args)

    def call(self, *args):
        with self._states:
            return self._frames.call(*args)

    def vote(self, number, before):
        """Send these frames and the vote; return Voted, Conflicts or Error."""
        return self._ask(lambda: (number, self._frames.vote(number)), before)

    def finish(self, number, complete):
        """Send the finish; return Done or Error.

        `complete` is called with the Done in the order of the stream, by the
        thread that has the turn, also if this thread was interrupted.  It may
        return an error, which is raised here.
        """
        return self._ask(
            lambda: self._made(number, self._frames.finish(number), complete))

    def trip(self, number, before, complete):
        """Vote and finish in one; return Done, Conflicts or Error."""
        return self._ask(
            lambda: self._made(number, self._frames.trip(number), complete),
            before)

    def _made(self, number, frame, complete):
        self._finishes[number] = complete
        return number, frame

    def may_be_finished(self, number):
        with self._states:
            return self._frames.may_be_finished(number)

    def is_lost(self, number):
        """Did the server say goodbye without an answer to its finish?"""
        with self._states:
            return self.said_goodbye and self._frames.is_finishing(number)

    def commit_id(self, number):
        return self._frames.commit_id(number)

    def ask(self, in_doubt, complete, seconds):
        """Ask what became of this commit of another stream; return the
        Outcome, or None if it has not come within `seconds`.

        `complete` is called with it in the order of the stream.  This thread
        does not read the stream: that could take longer.
        """
        self.check()
        ends = time.monotonic() + seconds
        answer = Answer()
        try:
            with UntilSent(self):
                with self._states:
                    number, frame = self._frames.ask(in_doubt)
                    answer.number = number
                    self._answers[number] = answer
                    self._finishes[number] = complete
                self._send(frame)
            while not answer.is_there and time.monotonic() < ends:
                self._check_over(answer)
                answer.sleep(min(LOOK_AGAIN, max(0, ends - time.monotonic())))
        finally:
            self._leave(answer)
        return answer.result()

    def abort(self, number):
        self.check()
        with UntilSent(self):
            with self._states:
                frame = self._frames.abort(number)
            if frame is not None:
                self._send(frame)

    def ping(self):
        """The last tid of the server; everything up to it is completed."""
        self.check()
        with self._room_lock:
            while not self._is_open:
                self._room.wait(LOOK_AGAIN)
        return self._ask(self._frames.ping).tid

    def send(self, data):
        self.check()
        with UntilSent(self):
            self._send(data)

    def _send(self, data):
        with self._sending:
            try:
                self._socket.sendall(data)
            except OSError as error:
                # Part of it may have left; all, if a signal handler raised.
                self.end(str(error))
                raise ClientDisconnected(self.end_reason) from error

    def _ask(self, make, before=b''):
        """Send `before` and the frame that `make` makes; return the answer."""
        self.check()
        answer = Answer()
        try:
            try:
                # If it cannot leave, the answer may have arrived nevertheless.
                with contextlib.suppress(ClientDisconnected), UntilSent(self):
                    with self._states:
                        answer.number, frame = make()
                        self._answers[answer.number] = answer
                    self._send(before + frame)
                answer.waits = True
                self._wait(answer)
            finally:
                self._leave(answer)
        finally:
            # Once more, in case an interrupt came in the middle of it.
            self._leave(answer)
        return answer.result()

    # The turn

    def _wait(self, answer):
        while not answer.is_there:
            self._check_over(answer)
            if self._turn.setdefault(0, answer) is answer:
                self._watch.disarm()
                self._read_until(answer)
            else:
                answer.sleep(LOOK_AGAIN)

    def _check_over(self, answer):
        if self._is_over and not answer.is_there:  # in this order
            raise Unanswered(self.end_reason)

    def _read_until(self, answer):
        while True:
            self._complete_all()
            if answer.is_there or self._is_over:
                return
            self._fill()

    def _leave(self, answer):
        """The thread no longer waits, for whatever reason."""
        if not answer.was_left:
            self._answers.pop(answer.number, None)
            self._give_up_turn(answer)
            if not answer.is_there:  # it may have left bytes uncompleted
                self._watch.wake()
            answer.was_left = True

    def _give_up_turn(self, holder):
        if self._turn.get(0) is holder:
            del self._turn[0]
        self._hand_on()

    def _hand_on(self):
        """If the turn is free, wake a thread to take it, or arm the watch."""
        if 0 in self._turn:
            return
        for answer in list(self._answers.values()):
            if answer.waits and not answer.is_there:
                answer.wake()
                return
        self._watch.arm()

    # The background reader

    def read_in_background(self):
        """Until the end."""
        try:
            self._keep_until_open()
            while not self._is_over:
                if self._background_has_turn():
                    try:
                        self._fill(socket.MSG_DONTWAIT)
                        self._complete_all()
                    finally:
                        self._give_up_turn(_BACKGROUND)
                self._watch.wait()
        finally:
            # Even if it is over: an interrupt may have come before all knew.
            self._be_over('its background reader has failed')
            self._close_socket()

    def _background_has_turn(self):
        """Take the turn if it is free; return whether this has it."""
        return self._turn.setdefault(0, _BACKGROUND) is _BACKGROUND

    def _keep_until_open(self):
        """Receive, but complete nothing yet.

        A server disconnects a client that takes nothing for a while, and there
        is no limit to how long the verification of a cache takes.
        """
        self._watch.arm()
        # From here on, `moved` and `end` wake this thread.
        while not self._is_open and self.end_reason is None:
            self._watch.wait()
            self._fill(socket.MSG_DONTWAIT)
            if self._frames.received > MOST_BEFORE_OPEN:
                self._be_over('too much came before the cache was verified')
            self._watch.arm()

    def _close_socket(self):
        """Close it when no thread can be in a call of it any more."""
        while not self._background_has_turn():
            self._watch.wait(LOOK_AGAIN)
        with self._sending:
            self._socket.close()
        self._finishes.clear()

    # What arrives, for the thread that has the turn

    def moved(self):
        """Open it: earlier announcements are here, the cache is verified."""
        with self._states:
            self._frames.moved()
        self._open()
        self._watch.wake()

    def _open(self):
        self._is_open = True
        with self._room_lock:
            self._room.notify_all()

    def _fill(self, flags=0):
        """Receive; at the end of the stream, complete what has arrived."""
        try:
            if self._frames.fill(self._socket.recv, RECEIVED_AT_ONCE, flags):
                return
            reason = CLOSED
        except BlockingIOError:
            return  # nothing has come
        except Exception as error:  # bytes may be lost
            reason = str(error)
        except BaseException:
            # Only a plain socket loses nothing (`Client.fill`).
            if isinstance(self._socket, TLSConnection):
                self.interrupted('while it received')
                self._be_over(self.end_reason)
            raise
        # A thread that was interrupted may have left messages.
        self._complete_all()
        self._be_over(reason)

    def _complete_all(self):
        """Complete every message that has arrived."""
        try:
            while self._frames.received and self._complete_next():
                pass
        except Exception as error:
            self._be_over(str(error))
        except BaseException:
            self.interrupted('within a message')
            self._be_over(self.end_reason)
            raise

    def _complete_next(self):
        """Complete one message, or several announcements; False: none left."""
        with self._completing:
            if self._is_over:
                return False
            with self._states:
                events = self._frames.next_together()
            if not events:
                return False
            try:
                self._complete(events)
            except BaseException:
                # Before a thread that waits for `_completing` goes on.
                self.is_broken = True
                raise
            return True

    def _complete(self, events):
        event = events[0]
        kind = event.__class__
        if kind is commits.Invalid:
            self._complete_invalid(events)
            return
        if kind is commits.Goodbye:
            self.said_goodbye = True
            self._be_over(CLOSED)
            return
        answer, error = self._answers.get(event.number), None
        finish = self._finishes.pop(event.number, None)
        if finish is not None and kind in COMPLETED:
            try:
                error = finish(event)
            except Exception as failed:
                self.end(str(failed))  # before the thread that waits goes on
                if answer is not None:
                    answer.error = failed
                raise
        if answer is not None:
            answer.error, answer.event = error, event
            answer.wake()
        elif kind is commits.Conflicts:
            self._abort_later(event.number)
        if kind is not commits.Voted:  # it is over, or can be aborted
            with self._room_lock:
                self._room.notify()

    def _abort_later(self, number):
        """Its thread no longer waits, and could not abort it then."""
        with self._states:
            frame = self._frames.abort(number)
        if frame is not None:
            self._aborts.append(frame)

    # The end

    def end(self, reason):
        """Take no more requests.  What has arrived is still completed.

        Any thread may call this, and more than once.
        """
        if self.end_reason is not None or not self._process.is_here:
            return
        self._reasons.append(reason)
        # First: if this thread is interrupted, another one finds the end.  The
        # system still delivers what has arrived before.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.end_reason = self._reasons[0]
        self._tell_end()

    def interrupted(self, when):
        """End it, because a thread of this process has left it half done."""
        if self.end_reason is None:
            self.was_interrupted = True
        self.end(f'a thread was interrupted {when}')

    def _be_over(self, reason):
        """Complete nothing more.  Any thread may call this, repeatedly."""
        self.end(reason)
        self._is_over = True
        self._tell_end()

    def _tell_end(self):
        self._open()  # nobody waits for that any more
        self._on_end(self)
        for answer in list(self._answers.values()):
            answer.wake()

    def close(self, reason):
        """End it; when it returns, nothing more is completed."""
        if not self._process.is_here:
            return
        self.end(reason)
        if self._background is not threading.current_thread():
            # It ends when some thread has completed all that has arrived.
            self._background.join(END_WITHIN)
        self._be_over(reason)
        with self._completing:
            pass
