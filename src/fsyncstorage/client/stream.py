"""The stream of a client: one connection, used by several threads.

A thread sends what it asks for, and reads the stream itself until its answer
has come.  Sending and reading are two rights:

- *The right to send* is a lock, held for one piece at a time: a large
  transaction leaves in pieces, and others send between them.
- *The right to read* belongs to one thread that waits for an answer, or to the
  background reader.  Who has it completes each message, also those for other
  threads, before it takes the next one: so the cache and the connections
  change in the order of the stream.  It sends nothing.  When it has its
  answer, it hands the right to another thread that waits; if there is none,
  the watch wakes the background reader for what comes next.

So while a thread cannot send, because the server does not take more, somebody
reads: two full buffers that face each other are no deadlock.

A thread that leaves by an interrupt ends the stream, and so does anything that
cannot be understood, or completed.  A stream that ends takes no more requests.
Messages that have arrived are still completed: what they tell of is committed,
in this order.  Then it is *over*, and all threads that wait get `Unanswered`.

Locks: `_lock` guards what is asked for, and the two rights; no lock is taken
inside it.  Nothing is called with it held that waits.

Left to others: the frames (frames), which reply may come (order), what a
message changes here (storage), who opens the next stream (failover).
"""

import contextlib
import select
import socket
import threading
import time

from ZEO.Exceptions import ClientDisconnected
from ZODB.POSException import StorageError

from ..wire import frames
from ..wire.order import Order
from .process import Process
from .watch import Watch

RECEIVED_AT_ONCE = 1 << 16
#: Announcements that have arrived together are told together, up to so many.
MOST_TOGETHER = 1000
#: Bytes of a piece that is a sign of life when it has left: a server that
#: hangs takes only as many of them as the buffers of the system have room for.
LARGE = 1 << 16
#: Of the time that a server may be silent: how often it is looked at.
LOOKS = 10

CLOSED = 'the server has closed it'


class Unanswered(ClientDisconnected):
    """The stream ended after a request, or a part of it, had left.

    Unless the server has said goodbye, nobody here knows what became of it.
    """


class Answer:
    """What one thread waits for."""

    __slots__ = 'message', 'error', 'is_there', 'complete', 'waits', '_wake'

    def __init__(self, complete=None):
        self.message = self.error = None
        self.is_there = False
        #: Called with the message, in the order of the stream.
        self.complete = complete
        #: Its thread may be woken to read.
        self.waits = False
        self._wake = threading.Lock()
        self._wake.acquire()

    def wake(self):
        try:
            self._wake.release()
        except RuntimeError:
            pass  # it is awake

    def sleep(self, seconds=-1):
        self._wake.acquire(timeout=seconds)

    def result(self):
        if self.error is not None:
            raise self.error
        return self.message


#: The background reader, as holder of the right to read.
_BACKGROUND = Answer()


class Stream:

    #: Its server has stopped: a finish without an answer is not committed.
    said_goodbye = False
    #: Why it takes no more requests; None: it does.
    end_reason = None
    #: Nothing more is completed.
    is_over = False
    #: Something was left half done: the cache cannot be relied on.
    is_broken = False

    def __init__(self, connection, inbox, welcome, may_be_silent, told):
        """`told(messages)` is called with what comes unasked: with one message
        or with several Invalid, in the order of the stream."""
        #: Seconds without a sign of life; None: for ever.
        self._may_be_silent = may_be_silent
        self._told = told
        self._socket = connection
        self._inbox = inbox
        self._process = Process('stream')
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._order = Order(welcome.tid)
        self._answers = {}  # number -> Answer
        self._reader = _BACKGROUND
        self._completing = None  # the thread that completes what has come
        self._watch = Watch(connection)
        self._heard = time.monotonic()
        self._asked_at = None  # when the server was asked for a sign of life
        self._taken_at = 0  # when the last large piece had left

    @property
    def last_tid(self):
        """The last that has come on it."""
        return self._order.last_tid

    # Requests, from any thread

    def check(self):
        self._process.check()
        if self.end_reason is not None:
            raise ClientDisconnected(self.end_reason)

    def begin(self, within=None):
        """The number of a new transaction, when there is room for it; None:
        there was no room for so many seconds."""
        with self._room:
            try:
                if not self._room.wait_for(self._may_begin, within):
                    return None
            except BaseException:
                self._room.notify()  # another thread may have this place
                raise
            self.check()
            return self._order.begins()

    def _may_begin(self):
        return (self.end_reason is not None
                or self._order.transactions < frames.MOST_OPEN)

    def say(self, messages):
        """Send what a transaction stores."""
        with self._lock:
            self.check()
            for message in messages:
                self._order.says(message)
        self._send(b''.join(map(frames.frame, messages)))

    def ask(self, message, before=(), complete=None, within=None):
        """Send these messages and then this one; return the answer to it, or
        raise ClientDisconnected if there is none within so many seconds.

        `complete` is called with the answer in the order of the stream, by
        the thread that has the right to read, also if this thread has left.
        """
        if self._completing == threading.get_ident():
            # Perhaps by a finaliser: it would wait for itself.
            raise StorageError('nothing can be asked for while a message of'
                               ' the server is completed')
        answer = Answer(complete)
        if not message.number:
            with self._lock:
                message = self._order.numbered(message)
        # If that raises, the transaction is as it was, and can be aborted.
        data = b''.join(map(frames.frame, (*before, message)))
        has_left = False
        try:
            try:
                self._begin_to_ask(message, before, answer)
                # If it cannot leave, the answer may have come nevertheless.
                with contextlib.suppress(ClientDisconnected):
                    self._send(data)
                if within is None:
                    self._wait(answer)
                else:
                    self._wait_for_others(answer, within)
            finally:
                self._leave(message.number, answer)
                has_left = True
        except BaseException as error:
            if not has_left:  # it was interrupted while it left
                self._leave(message.number, answer)
            if not has_left or not isinstance(error, _EXPECTED):
                self.end('a thread was interrupted')
            raise
        return answer.result()

    def _begin_to_ask(self, message, before, answer):
        with self._lock:
            self.check()
            for each in before:
                self._order.says(each)
            self._order.says(message)
            self._answers[message.number] = answer

    def abort(self, number):
        """Nobody waits for the answer.  May be repeated."""
        with self._lock:
            if not self._order.may_abort(number) or self.end_reason:
                return
            message = frames.Abort(number)
            self._order.says(message)
        with contextlib.suppress(ClientDisconnected):
            self._send(frames.frame(message))

    def _send(self, data):
        try:
            with self._sending:
                self._socket.sendall(data)
                if len(data) >= LARGE:
                    self._taken_at = time.monotonic()
        except OSError as error:
            # Part of it may have left; all, if a signal handler raised.
            self.end(str(error))
            raise ClientDisconnected(self.end_reason) from error
        except BaseException:
            self.end('a thread was interrupted while it sent')
            raise

    # The right to read

    def _wait(self, answer):
        while not answer.is_there:
            if self.is_over:
                raise Unanswered(self.end_reason)
            if not self._takes_reading(answer):
                answer.sleep()
                continue
            self._watch.disarm()
            while not (answer.is_there or self.is_over):
                self._receive()
            # (`_leave` hands the right on.)

    def _wait_for_others(self, answer, seconds):
        """While others read: who reads cannot say when that ends."""
        ends = time.monotonic() + seconds
        while not answer.is_there:
            left = ends - time.monotonic()
            if self.is_over:
                raise Unanswered(self.end_reason)
            if left <= 0:
                raise ClientDisconnected(f'no answer within {seconds:g} s')
            answer.sleep(left)

    def _takes_reading(self, answer):
        with self._lock:
            answer.waits = True
            if self._reader is None and not self.is_over:
                self._reader = answer
            return self._reader is answer

    def _give_reading(self, holder):
        with self._lock:
            if self._reader is not holder:
                return
            self._reader = None
            self._hand_on()

    def _hand_on(self):
        """Wake a thread that takes the right to read, or arm the watch."""
        if self.is_over:
            self._room.notify_all()
        for answer in self._answers.values():
            if answer.waits and not answer.is_there:
                answer.wake()
                return
        self._watch.arm()

    def _leave(self, number, answer):
        """The thread no longer waits, for whatever reason."""
        with self._lock:
            if self._answers.get(number) is answer:
                if answer.is_there or answer.complete is None:
                    del self._answers[number]
                else:
                    answer.waits = False  # it is completed without it
            if self._reader is answer:
                self._reader = None
            if self._reader is None:
                self._hand_on()

    # What arrives, for the holder of the right to read

    def _receive(self, flags=0):
        """Receive once, and complete what has come."""
        try:
            data = self._socket.recv(RECEIVED_AT_ONCE, flags)
            self._heard = time.monotonic()
            # If it is lost here, nothing behind it may be completed.
            self._inbox.add(data)
        except BlockingIOError:
            return
        except OSError as error:
            self._be_over(str(error))
            return
        except BaseException:
            self._be_over('a thread was interrupted while it received')
            raise
        if not data:
            self._be_over(CLOSED)
            return
        try:
            self._completing = threading.get_ident()
            self._complete_all()
        except Exception as error:
            self.is_broken = True
            self._be_over(str(error) or repr(error))
        except BaseException:
            self.is_broken = True
            self._be_over('a thread was interrupted within a message')
            raise
        finally:
            self._completing = None

    def _complete_all(self):
        invalid = []
        while (message := self._inbox.next()) is not None:
            with self._lock:
                message = self._order.take(message)
            kind = message.__class__
            if kind is frames.Invalid:
                invalid.append(message)
                if len(invalid) < MOST_TOGETHER:
                    continue
            if invalid:
                together, invalid = invalid, []
                self._told(together)
            if kind is frames.Goodbye:
                self.said_goodbye = True
                self.end(CLOSED)
            elif kind is frames.Sizes:
                self._told([message])
            elif message is not None and kind is not frames.Invalid:
                self._complete(message)
        if invalid:
            self._told(invalid)

    def _complete(self, message):
        with self._lock:
            answer = self._answers.get(message.number)
            ended = self._order.state(message.number) is None
            if ended:
                self._room.notify()
        if answer is None:
            if message.__class__ in (frames.Voted, frames.Conflicts):
                self.end('a transaction was left while it was voted')
            return
        if answer.complete is not None:
            answer.error = answer.complete(message) or answer.error
        if not ended and message.__class__ in _PIECES:
            return
        answer.message = message
        answer.is_there = True
        with self._lock:
            self._answers.pop(message.number, None)
        answer.wake()

    # The background reader

    def read_in_background(self):
        """Until it is over."""
        wait = self._may_be_silent and self._may_be_silent / LOOKS
        self._give_reading(_BACKGROUND)
        try:
            while not self.is_over:
                self._watch.wait(wait)
                if self._background_takes_reading():
                    self._receive(socket.MSG_DONTWAIT)
                    self._give_reading(_BACKGROUND)
                if wait and not self.end_reason:
                    self._look_for_life()
        finally:
            self._be_over('its background reader has failed')
            self._close_socket()
            self._watch.close()

    def _close_socket(self):
        """When no thread can be in a call of it any more, and mistake another
        connection for it that has got the same number."""
        with self._room:
            while self._reader not in (None, _BACKGROUND):
                self._room.wait()
            self._reader = _BACKGROUND
        with self._sending:
            self._socket.close()

    def _background_takes_reading(self):
        with self._lock:
            if self._reader is None:
                self._reader = _BACKGROUND
            return self._reader is _BACKGROUND

    def _look_for_life(self):
        """Ask a silent server for a sign, and end the stream without one."""
        now, heard = time.monotonic(), self._heard
        if self._asked_at is not None and heard >= self._asked_at:
            self._asked_at = None
        if now - heard < 2 * self._may_be_silent / LOOKS:
            return
        if self._asked_at is None and self._ask_for_a_sign():
            self._asked_at = now
        since = max(self._asked_at or heard, self._taken_at)
        if now - since >= self._may_be_silent:
            self.end(f'nothing was heard from the server for'
                     f' {self._may_be_silent:g} s')
            self._be_over(self.end_reason)

    def _ask_for_a_sign(self):
        """Has it left?  Nobody waits for the answer: that something comes is
        enough.  And nobody waits here: not for another thread that sends, and
        not for room."""
        if not self._sending.acquire(blocking=False):
            return False
        try:
            if not self._takes_more():
                return False
            with self._lock:
                ping = self._order.asks(frames.Ping(0))
            self._socket.sendall(frames.frame(ping))
            return True
        except OSError as error:
            self.end(str(error))
            return False
        finally:
            self._sending.release()

    def _takes_more(self):
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLOUT)
        return bool(poll.poll(0))

    # The end

    def not_understood(self, error):
        """End it, since an answer cannot be read; return the error for the
        caller."""
        self.end(str(error))
        return ClientDisconnected(
            f'the server answers what this client does not understand'
            f' ({error})')

    def end(self, reason):
        """Take no more requests.  What has arrived is still completed.

        Any thread may call this, and more than once.
        """
        if not self._process.is_here:
            return
        with self._lock:
            if self.end_reason is not None:
                return
            self.end_reason = reason
            self._room.notify_all()
        # The system still delivers what has arrived before.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._watch.wake()

    def _be_over(self, reason):
        """Complete nothing more.  May be repeated."""
        self.end(reason)
        with self._lock:
            self.is_over = True
            for answer in self._answers.values():
                answer.wake()
        self._watch.wake()


#: What a question raises; the handler of a signal may raise anything else.
_EXPECTED = ClientDisconnected, frames.CallerError

#: Further messages of the same answer follow, unless it has ended.
_PIECES = frames.BlobSize, frames.BlobChunk
