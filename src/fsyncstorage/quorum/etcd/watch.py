"""Notices that the head has moved, from a stream of etcd.

The stream is opened when somebody waits, and lasts for a second: then a wait
has cost two questions.  While records arrive, later waits read from the same
stream, and cost only the reading of notices.  Notices that arrived while
nobody waited are read first, and say where the log ends.
"""

import contextlib
import time

from ..history.record import Damaged
from ..history.record import parse_place
from . import messages
from .cluster import Cluster
from .keys import Keys
from .keys import opened
from .member import Asked
from .member import Member
from .messages import Message
from .trouble import Late
from .trouble import Lost
from .trouble import Trouble

#: The least seconds that a wait takes if it fails.
PAUSE = 0.2
#: Seconds of a stream; a wait may take so much longer than it was asked to.
LASTS = 1.0


class Watch:

    def __init__(self, cluster: Cluster, keys: Keys) -> None:
        self._cluster = cluster
        self._keys = keys
        self._stream: Asked | None = None
        #: The last head that a notice of this stream has named.
        self._head = 0

    def wait(self, sequence: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        member = self._cluster.preferred
        try:
            while True:
                with contextlib.suppress(Late):
                    stream = self._stream or self._opened(member, deadline)
                    while self._head < sequence:
                        self._head = max(
                            self._head, self._head_of(stream.next()))
                    return
                self._stream = None  # it has ended
                if time.monotonic() >= deadline:
                    return
        except (Trouble, Damaged) as error:
            self.close()
            self._cluster.pause(PAUSE)
            raise self._cluster.failed(member, error) from error

    def _opened(self, member: Member, deadline: float) -> Asked:
        head = self._keys.head
        deadline = min(deadline, time.monotonic() + LASTS)
        self._stream = stream = member.begin(messages.watching(head), deadline)
        # Later puts are noticed; what is already there is read now.
        notice = stream.next()
        if notice.canceled or not notice.created:
            raise Lost('it does not begin to watch')
        self._head = self._sequence(messages.one(
            member.ask(messages.pairs_of(head, 1), deadline)))
        return stream

    def _head_of(self, notice: Message) -> int:
        """The last head that the notice names, or 0."""
        if notice.canceled:
            raise Lost('it has ended the watch')
        return max(map(self._sequence, messages.noticed(notice)), default=0)

    def _sequence(self, value: bytes | None) -> int:
        if value is None:  # there is no log
            return 0
        return parse_place(opened(self._keys.head, value)).sequence

    def close(self) -> None:
        if self._stream is not None:
            self._stream.give_up()
            self._stream = None
