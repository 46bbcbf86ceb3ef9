"""One member of etcd, which answers questions, or is in trouble.

A question is a call of gRPC.  grpcio keeps the connection, and makes another
one when it has ended.  Every call is made as one with a stream of answers
(of one): so it is sent at once, and its answer is waited for later, by
the thread that has asked; grpcio starts no thread for it.

A token comes from etcd for a name and a password.  It expires after a while,
or when the member starts again.  Then a new one is requested, once, and the
question is repeated: it has had no effect.
"""

import contextlib
import math
import os
import pathlib
import threading
import time
import typing

import grpc
import grpc.experimental

from . import messages
from .messages import Message
from .messages import Question
from .settings import Settings
from .trouble import Lost
from .trouble import Refused
from .trouble import Said
from .trouble import Trouble
from .trouble import Untrusted
from .trouble import of_grpc

#: Seconds from one look at the files of the certificates to the next.
LOOK_EVERY = 60.0
#: Bytes of an answer.
LONGEST = 16 << 20

OPTIONS = (
    (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),
    ('grpc.max_receive_message_length', LONGEST),
    # Two logs of one process share no connection.
    ('grpc.use_local_subchannel_pool', 1),
    # An address is a member's, and no proxy's.  What is sent again is for us
    # to say.
    ('grpc.enable_http_proxy', 0), ('grpc.enable_retries', 0),
    # A member that is back is found at once: from this to that pause between
    # two tries, and the time of one.
    ('grpc.initial_reconnect_backoff_ms', 100),
    ('grpc.max_reconnect_backoff_ms', 500),
    ('grpc.min_reconnect_backoff_ms', 2_000),
    # A connection is given up when nothing is acknowledged for this time: its
    # host may have lost its power.  (etcd allows a ping in 5 seconds.)
    ('grpc.keepalive_time_ms', 10_000),
    ('grpc.keepalive_timeout_ms', 2_000))


class Member:

    def __init__(self, address: str, settings: Settings) -> None:
        self.address = address
        self._settings = settings
        #: None until one is requested.
        self._token: str | None = None
        # Of the channel and whether there may be one.  No file is read under
        # it.
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        #: When the files were written that the credentials were read from, and
        #: when to look; never while a thread looks.
        self._written = _written(settings)
        self._credentials = _credentials(address, settings)
        self._look_due = time.monotonic() + LOOK_EVERY
        self._is_closed = False

    def __str__(self) -> str:
        return self.address

    def ask(self, question: Question, deadline: float) -> Message:
        """Ask, and wait for the answer."""
        try:
            return self.begin(question, deadline).answer()
        except Said as error:
            if not error.token or self._settings.user is None:
                raise
        return self.begin(question, deadline).answer()

    def begin(self, question: Question, deadline: float) -> 'Asked':
        """Ask, and return at once.  The deadline is that of the answer."""
        user, password = self._settings.user, self._settings.password
        if self._token is None and user is not None and password is not None:
            self._token = self._sent(messages.authentication(
                user, password), deadline).answer().token
        return self._sent(question, deadline)

    def _sent(self, question: Question, deadline: float) -> 'Asked':
        channel, token = self._connected(), self._token
        try:
            return Asked(self, channel, question, channel.unary_stream(
                question.path)(
                    question.body, timeout=deadline - time.monotonic(),
                    metadata=() if token is None else (('token', token),)))
        except ValueError as error:
            # The channel is closed, or the token would be no header.
            self._token = None
            raise Lost(f'a call that cannot be made: {error}') from None

    def trouble(self, channel: grpc.Channel, error: grpc.RpcError) -> Trouble:
        found = of_grpc(error.code().value[0], error.details() or '')
        if isinstance(found, Said) and found.token:
            self._token = None  # the next question requests another
        if isinstance(found, Untrusted):
            self.discard(channel)
            if self._look_due < math.inf:
                self._look_due = 0.0  # the files may have changed
        return found

    # Its connection

    def _connected(self) -> grpc.Channel:
        with self._lock:
            if self._is_closed:
                raise Lost('it was stopped')
            if self._channel is None:
                self._channel = _channel(self.address, self._credentials)
            channel, is_due = self._channel, time.monotonic() >= self._look_due
            if is_due:
                self._look_due = math.inf
        if is_due:
            threading.Thread(
                target=self._renew_if_changed, daemon=True,
                name=f'certificates for {self.address}').start()
        return channel

    def _renew_if_changed(self) -> None:
        """In a thread for which nobody waits: a file system may hang.

        Later questions get a connection with the new files.  (The calls that
        are under way keep the old one.  Files that do not belong together are
        about to be replaced: the next look finds out.)
        """
        written = _written(self._settings)
        if written != self._written:
            with contextlib.suppress(Refused):
                self._credentials = _credentials(self.address, self._settings)
                self._written = written
                with self._lock:
                    self._channel = None
        self._look_due = time.monotonic() + LOOK_EVERY

    def discard(self, channel: grpc.Channel) -> None:
        """End all its calls.  The next question makes another connection."""
        with self._lock:
            channel.close()
            if self._channel is channel:
                self._channel = None

    def close(self) -> None:
        """Any thread may call it: it ends all calls."""
        with self._lock:
            self._is_closed = True
            if self._channel is not None:
                self._channel.close()


class Asked:
    """A question that was sent, and its answer."""

    def __init__(self, member: Member, channel: grpc.Channel,
                 question: Question, call: typing.Any) -> None:
        self.member = member
        self._channel = channel
        self._question = question
        self._call = call

    def answer(self) -> Message:
        """Wait for it, and for the end of the call; raise Trouble if there is
        none."""
        try:
            raw = next(self._call, None)
            if raw is None or next(self._call, None) is not None:
                raise Lost('no answer, or more than one')
            return self._question.parse(raw)
        except grpc.RpcError as error:
            raise self.member.trouble(self._channel, error) from None
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        """End the call, with its connection: grpcio does not forget a call
        that was cancelled, as long as its end was not read."""
        self.member.discard(self._channel)
        with contextlib.suppress(grpc.RpcError):
            for _ in self._call:
                pass


def _written(settings: Settings) -> list[int | None]:
    """When each file was written; None: it is not there, or not needed."""
    found: list[int | None] = []
    for path in settings.ca, settings.cert, settings.key:
        try:
            found.append(None if path is None else os.stat(path).st_mtime_ns)
        except OSError:
            found.append(None)
    return found


def _credentials(address: str,
                 settings: Settings) -> grpc.ChannelCredentials | None:
    """Read them from their files; None: without TLS."""
    if address.startswith('http:'):
        return None
    ca, cert, key = settings.ca, settings.cert, settings.key or settings.cert
    try:
        settings.context()  # checks them first, and says what is wrong
        return grpc.ssl_channel_credentials(
            *(path and pathlib.Path(path).read_bytes()
              for path in (ca, key, cert)))
    except (OSError, ValueError) as error:  # of ssl, too
        raise Refused(
            'the files of "ca", "cert" and "key" cannot be used:'
            f' {error}') from error


def _channel(address: str,
             credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
    _, _, target, *_ = address.split('/')
    return (grpc.insecure_channel(target, OPTIONS) if credentials is None else
            grpc.secure_channel(target, credentials, OPTIONS))
