"""One member of etcd, which answers questions, or is in trouble.

Connections are kept for later questions; each thread that asks has one for
itself until it has its answer.  An idle connection that has ended is detected
before it is used, since a question sent into it would get no answer.

A token comes from etcd for a name and a password, and holds for all members.
It expires after a while, or when a member starts again.  Then a new one is
requested, once, and the question is repeated: it has had no effect.
"""

import collections
import contextlib
import ssl
import time
import typing

from . import messages
from .connection import Address
from .connection import Connection
from .messages import Question
from .protobuf import Message
from .trouble import Late
from .trouble import Lost
from .trouble import Said

#: The most idle connections to a member.
MOST_IDLE = 4
LONGEST_TOKEN = 1 << 12


class Login(typing.Protocol):
    """What all members share."""

    user: str | None
    password: str | None
    token: str | None

    @property
    def stopped(self) -> bool:
        ...


class Member:

    def __init__(self, address: Address, tls: ssl.SSLContext | None,
                 login: Login) -> None:
        self.address = address
        self._tls = tls if address.tls else None
        self._login = login
        self._idle: collections.deque[Connection] = collections.deque()
        #: All open connections; another thread may abort them.
        self._open: set[Connection] = set()

    def __str__(self) -> str:
        return self.address.text

    def ask(self, question: Question, deadline: float) -> Message:
        """Ask, and wait for the answer."""
        try:
            return self.begin(question, deadline).answer(deadline)
        except Said as error:
            if not error.token or self._login.user is None:
                raise
        return self.begin(question, deadline).answer(deadline)

    def begin(self, question: Question, deadline: float) -> 'Asked':
        """Ask, and return at once; raise Trouble if it cannot be sent."""
        return self._sent(question, self._token(deadline), deadline)

    def _sent(self, question: Question, token: str | None,
              deadline: float) -> 'Asked':
        asked = Asked(self, self._connection(deadline))
        try:
            asked.connection.send(question, token, deadline)
        except BaseException:
            asked.give_up()
            raise
        return asked

    def listen(self, question: Question, deadline: float) -> 'Heard':
        """Ask for a stream of answers."""
        asked = self.begin(question, deadline)
        try:
            asked.connection.listen(deadline)
        except BaseException as error:
            asked.give_up()
            if isinstance(error, Said):
                self.has_said(error)
            raise
        return Heard(asked)

    # Connections

    def _connection(self, deadline: float) -> Connection:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if connection.is_fresh:
                return connection
            self.discard(connection)
        self._check()
        connection = Connection(self.address, self._tls, deadline)
        self._open.add(connection)
        try:
            self._check()  # `abort` may have missed it
        except Lost:
            self.discard(connection)
            raise
        return connection

    def _check(self) -> None:
        if self._login.stopped:
            raise Lost('it was stopped')

    def keep(self, connection: Connection) -> None:
        if connection.is_open and len(self._idle) < MOST_IDLE:
            self._idle.append(connection)
        else:
            self.discard(connection)

    def discard(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.close()

    def discard_idle(self) -> None:
        """A connection had trouble, so the idle ones are probably no better.
        """
        while self._idle:
            with contextlib.suppress(IndexError):
                self.discard(self._idle.pop())

    def abort(self) -> None:
        for connection in list(self._open):
            connection.abort()

    def close(self) -> None:
        while self._open:
            self._open.pop().close()
        self._idle.clear()

    # Our name and password

    def has_said(self, error: Said) -> None:
        """If the token was refused, the next question requests another."""
        if error.token:
            self._login.token = None

    def _token(self, deadline: float) -> str | None:
        login = self._login
        if login.user is None or login.password is None:
            return None
        if login.token is None:
            answer = self._sent(
                messages.authentication(login.user, login.password), None,
                deadline).answer(deadline)
            login.token = _in_a_header(messages.token(answer))
        return login.token


class Asked:
    """A question that was sent."""

    def __init__(self, member: Member, connection: Connection) -> None:
        self.member = member
        self.connection = connection

    def answer(self, deadline: float) -> Message:
        try:
            found = self.connection.answer(deadline)
        except Said as error:
            self.member.keep(self.connection)
            self.member.has_said(error)
            raise
        except BaseException:
            self.give_up()
            raise
        self.member.keep(self.connection)
        return found

    def give_up(self) -> None:
        """There will be no answer: close the connection."""
        self.member.discard(self.connection)
        self.member.discard_idle()


class Heard:
    """A stream of answers."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def next(self, seconds: float) -> Message | None:
        """The next message; None if there was none in time, and the stream is
        closed."""
        try:
            return self._asked.connection.next(time.monotonic() + seconds)
        except Late:
            self.close()
            return None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._asked.member.discard(self._asked.connection)


def _in_a_header(token: str) -> str:
    if (not 0 < len(token) <= LONGEST_TOKEN or not token.isascii()
            or not token.isprintable()):
        raise Lost('an answer with no token in it')
    return token
