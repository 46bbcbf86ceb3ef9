"""The commit channel of a client: one stream, used by several threads.

A thread that wants an answer sends its request, and reads the stream itself
until the answer has come.  Whoever reads has the *turn*, and completes each
message, also those for others, before taking the next one: what happens to the
cache and to the connections happens in the order of the stream.

- A thread that finds the turn taken sleeps until it is woken: by its answer,
  or because the turn is free.  It also looks by itself now and then, in case
  the thread that should have woken it was interrupted.
- When no thread wants an answer, a background reader reads what comes.  While
  one does, the background reader is not even woken.
- An interrupt leaves the stream as it is, but for a few moments: in the middle
  of sending, or of completing a message, and with TLS of receiving, too.  Then
  the stream ends.
- The end of the stream is told once, by `on_end`.  All threads that wait, and
  that come later, get `ClientDisconnected`.

Left to others: the frames (wire.commits), what completes a message (link),
the messages of one transaction (committing).
"""

import contextlib
import select
import socket
import threading

from ZEO.Exceptions import ClientDisconnected

from ..wire import commits
from . import readchannel
from .tlsconnection import TLSConnection

RECEIVED_AT_ONCE = 1 << 16
# Seconds after which a thread that waits looks by itself.
LOOK_AGAIN = 1
# Seconds in which the background reader ends.
END_WITHIN = 9

#: Only with this can the background reader be left asleep.
is_possible = hasattr(select, 'epoll')


class _Answer:
    """What one thread waits for."""

    __slots__ = 'event', 'error', 'was_left', '_wake'

    def __init__(self):
        self.event = self.error = None
        #: Its thread waits no more, and has given up the turn.
        self.was_left = False
        self._wake = threading.Lock()
        self._wake.acquire()

    @property
    def is_there(self):
        return self.event is not None or self.error is not None

    def wake(self):
        with contextlib.suppress(RuntimeError):  # it is awake
            self._wake.release()

    def sleep(self):
        self._wake.acquire(timeout=LOOK_AGAIN)


class _Watch:
    """Wakes the background reader when something comes, while it is armed."""

    def __init__(self, connection):
        self._descriptor = connection.fileno()
        self._poll = select.epoll()
        self._poll.register(self._descriptor, 0)

    def arm(self):
        """For one time."""
        self._set(select.EPOLLIN | select.EPOLLONESHOT)

    def disarm(self):
        self._set(0)

    def _set(self, events):
        with contextlib.suppress(OSError, ValueError):  # it is closed
            self._poll.modify(self._descriptor, events)

    def wait(self):
        self._poll.poll()

    def close(self):
        self._poll.close()


class Stream:

    #: The cache may be half changed.
    is_broken = False

    def __init__(self, connection, frames, encoding, complete, on_end):
        """A channel that was welcomed.

        `complete` is called with each Invalid, in the order of the stream;
        `on_end` with the stream, from any thread, and perhaps repeatedly.
        """
        #: Of what ZEO encodes.
        self.encoding = encoding
        self._socket = connection
        self._frames = frames
        self._complete_invalid = complete
        self._on_end = on_end
        self._states = threading.Lock()  # of `_frames`
        self._sending = threading.Lock()
        self._completing = threading.Lock()
        #: Who has the turn, as the value of 0: one step takes it.
        self._turn = {}
        self._answers = {}   # number -> _Answer
        self._finishes = {}  # number -> what completes a Done
        self._places = threading.Semaphore(commits.MOST_OPEN)
        #: None: it goes on.
        self.end_reason = None
        self._is_open = threading.Event()
        self._watch = _Watch(connection)
        self._background = threading.current_thread()

    # Requests, from any thread

    def begin(self, message):
        """The number of a new transaction, and its first frame."""
        self._is_open.wait()
        self.check()
        self._places.acquire()
        self.check()
        with self._states:
            return self._frames.begin(message)

    def check(self):
        if self.end_reason is not None:
            raise ClientDisconnected(self.end_reason)

    def store(self, *args):
        with self._states:
            return self._frames.store(*args)

    def call(self, *args):
        with self._states:
            return self._frames.call(*args)

    def vote(self, number, before):
        """Send it behind these frames; return Voted, Conflicts or Error."""
        with self._states:
            frame = self._frames.vote(number)
        return self._ask(number, before + frame)

    def finish(self, number, complete):
        """Send it; return Done or Error.

        `complete` is called with the Done in the order of the stream, by
        whichever thread has the turn, also if this one was interrupted.
        """
        with self._states:
            frame = self._frames.finish(number)
            self._finishes[number] = complete
        return self._ask(number, frame)

    def abort(self, number):
        with self._states:
            frame = self._frames.abort(number)
        if frame is not None:
            self.send(frame)

    def ping(self):
        """The last tid of the server; everything up to it is completed."""
        self._is_open.wait()
        with self._states:
            number, frame = self._frames.ping()
        return self._ask(number, frame).tid

    def send(self, data):
        self.check()
        with self._sending:
            try:
                self._socket.sendall(data)
            except OSError as error:
                self.end(str(error))
            except BaseException:
                self.end('a thread was interrupted while it sent')
                raise
        self.check()

    def _ask(self, number, data):
        answer = self._answers[number] = _Answer()
        try:
            try:
                self.send(data)
                self._wait(answer)
            finally:
                self._leave(number, answer)
        finally:
            # Once more, in case an interrupt came in the middle of it.
            self._leave(number, answer)
        if answer.event is None:
            raise answer.error
        return answer.event

    # The turn

    def _wait(self, answer):
        while not answer.is_there:
            if self.end_reason is not None:
                answer.error = ClientDisconnected(self.end_reason)
            elif self._turn.setdefault(0, answer) is answer:
                self._watch.disarm()
                self._read_until(answer)
            else:
                answer.sleep()

    def _read_until(self, answer):
        while True:
            self._complete_all()
            if answer.is_there or self.end_reason is not None:
                return
            self._fill()

    def _leave(self, number, answer):
        """The thread waits no more, for whatever reason."""
        if not answer.was_left:
            self._answers.pop(number, None)
            self._give_up_turn(answer)
            answer.was_left = True

    def _give_up_turn(self, holder):
        if self._turn.get(0) is holder:
            del self._turn[0]
        self._hand_on()

    def _hand_on(self):
        """If the turn is free, somebody has to take it."""
        if 0 in self._turn:
            return
        for answer in list(self._answers.values()):
            if not answer.is_there:
                answer.wake()
                return
        self._watch.arm()

    def read_in_background(self):
        """Until the end."""
        try:
            self._is_open.wait()
            while self.end_reason is None:
                if self._turn.setdefault(0, self) is self:
                    try:
                        self._fill(socket.MSG_DONTWAIT)
                        self._complete_all()
                    finally:
                        self._give_up_turn(self)
                self._watch.wait()
        finally:
            # The thread that ended it may have been interrupted before that.
            self._on_end(self)
            self._watch.close()

    # What comes, for the one that has the turn

    def moved(self):
        """What was announced before has come, and the cache is verified."""
        with self._states:
            self._frames.moved()
        self._is_open.set()

    def _fill(self, flags=0):
        try:
            if not self._frames.fill(
                    self._socket.recv, RECEIVED_AT_ONCE, flags):
                self.end(readchannel.CLOSED)
        except BlockingIOError:
            pass  # nothing has come
        except OSError as error:
            self.end(str(error))
        except BaseException:
            # Only a plain socket loses nothing (`Client.fill`).
            if isinstance(self._socket, TLSConnection):
                self.end('a thread was interrupted while it received')
            raise

    def _complete_all(self):
        """Complete every message that has come."""
        try:
            while True:
                with self._completing:
                    if self.end_reason is not None:
                        return
                    with self._states:
                        event = self._frames.next()
                    if event is None:
                        return
                    self._complete(event)
        except Exception as error:
            self.end(str(error))
        except BaseException:
            self.is_broken = True
            self.end('a thread was interrupted in the middle of a message')
            raise

    def _complete(self, event):
        kind = event.__class__
        if kind is commits.Invalid:
            self._complete_invalid(event)
            return
        number = event.number
        answer = self._answers.get(number)
        finish = self._finishes.pop(number, None)
        if kind is commits.Done:
            try:
                finish(event)
            except Exception as error:
                if answer is not None:
                    answer.error = error
                raise
        if kind in (commits.Done, commits.Error, commits.Aborted):
            self._places.release()
        if answer is not None:
            answer.event = event
            answer.wake()

    # The end

    def end(self, reason):
        """Any thread may call it, and more than once."""
        if self.end_reason is not None:
            return
        # First: if this thread is interrupted, another one finds the end.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._is_open.set()
        self._places.release(commits.MOST_OPEN)
        self.end_reason = reason
        self._on_end(self)
        for answer in list(self._answers.values()):
            answer.wake()
        self._watch.arm()

    def close(self, reason):
        """End it; when it returns, nothing more is completed."""
        self.end(reason)
        with self._completing:
            pass
        if self._background is not threading.current_thread():
            self._background.join(END_WITHIN)
        with self._sending:
            self._socket.close()


def open_stream(address, ssl, hostname, instance, ticket, *arguments):
    """Connect, and wait for the welcome; `Lost` if there is none.

    The thread that calls it is the one that reads in the background.
    """
    frames = commits.Client(instance, ticket)
    connection = readchannel.connect(address, ssl, hostname)
    try:
        connection.sendall(frames.hello)
        while (event := frames.next()) is None:
            if not frames.fill(connection.recv, RECEIVED_AT_ONCE):
                raise readchannel.Lost(readchannel.CLOSED)
        if event.__class__ is commits.Refused:
            raise readchannel.ChannelRefused(*event)
        connection.settimeout(None)
        if ssl is not None:
            connection = TLSConnection(connection)
        return Stream(connection, frames, *arguments)
    except (OSError, commits.PeerError) as error:
        connection.close()
        raise readchannel.Lost(str(error)) from error
    except BaseException:
        connection.close()
        raise
