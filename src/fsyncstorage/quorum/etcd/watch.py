"""Notices that the head has moved, from a stream that etcd keeps open.

The stream is opened when somebody waits, and closed when nothing arrived
during the wait: then a wait has cost two questions.  While records arrive, it
stays open, and a wait costs only the reading of notices.  Notices that arrived
while nobody waited are read first, and say where the log ends.
"""

import time

from ..history.record import Damaged
from ..history.record import parse_place
from . import messages
from .cluster import Cluster
from .keys import Keys
from .keys import opened
from .member import Heard
from .member import Member
from .messages import Notice
from .trouble import Lost
from .trouble import Trouble

#: The least seconds that a wait takes if it fails.
PAUSE = 0.2


class Watch:

    def __init__(self, cluster: Cluster, keys: Keys) -> None:
        self._cluster = cluster
        self._keys = keys
        self._stream: tuple[Member, Heard] | None = None
        #: The last head that a notice of this stream has named.
        self._head = 0

    def wait(self, sequence: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        member = self._cluster.preferred
        try:
            member, stream = self._opened(member)
            while self._head < sequence:
                answer = stream.next(max(0, deadline - time.monotonic()))
                if answer is None:
                    self._stream = None
                    return
                self._head = max(
                    self._head, self._head_of(messages.notice(answer)))
        except (Trouble, Damaged) as error:
            self.close()
            self._cluster.pause(PAUSE)
            raise self._cluster.failed(member, error) from error
        except BaseException:
            self.close()
            raise

    def _opened(self, member: Member) -> tuple[Member, Heard]:
        if self._stream is None:
            deadline = self._cluster.share()
            stream = member.listen(
                messages.watching(self._keys.head), deadline)
            self._stream = member, stream
            # Later puts are noticed; what is already there is read now.
            answer = stream.next(deadline - time.monotonic())
            if answer is None:
                raise Lost('it does not begin to watch')
            notice = messages.notice(answer)
            if notice.canceled or not notice.created:
                raise Lost('it does not begin to watch')
            value = messages.one(member.ask(
                messages.pairs_of(self._keys.head, 1), deadline))
            self._head = self._sequence(value)
        return self._stream

    def _head_of(self, notice: Notice) -> int:
        """The last head that the notice names, or 0."""
        if notice.canceled:
            raise Lost('it has ended the watch')
        return max(map(self._sequence, notice.values), default=0)

    def _sequence(self, value: bytes | None) -> int:
        if value is None:  # there is no log
            return 0
        return parse_place(opened(self._keys.head, value)).sequence

    def close(self) -> None:
        if self._stream is not None:
            self._stream[1].close()
            self._stream = None
