"""One storage that is shown: what it is, what it was, and who serves it."""

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any

from .past import Past
from .probes import Pulse
from .reading import Reading

logger = logging.getLogger(__name__)


class Failures:
    """Logs each failure once, until the same has worked again: it is tried
    every few seconds, and may fail each time."""

    def __init__(self) -> None:
        self._now: set[str] = set()

    @contextlib.contextmanager
    def said(self, words: str) -> Iterator[None]:
        try:
            yield
        except Exception:
            if words not in self._now:
                self._now.add(words)
                logger.exception('%s', words)
        else:
            self._now.discard(words)


class Shown:

    def __init__(self, name: str, storage: Any, node: Any = None) -> None:
        self.name = name
        #: Shown until a storage can be opened (storage.host).
        self.node = node
        self.has_opened(storage)
        #: The server's part for it (server.service), and the pulse of its
        #: loop; None without a server.
        self.service: Any = None
        self.pulse: Pulse | None = None
        self._failures = Failures()
        #: Used only by the thread that answers.
        self.past = Past()

    def has_opened(self, storage: Any) -> None:
        """The storage is open now, and shown in place of its node."""
        #: Our storage, which others may wrap; None if it is not ours, or is
        #: not open yet.
        self.storage: Any = getattr(
            getattr(storage, 'histograms', None), '__self__', None)

    @property
    def file(self) -> str | None:
        """Its path; None if it is not ours, or is not open yet."""
        return None if self.storage is None else str(self.storage.getName())

    def served_by(self, service: Any, traffic: Any) -> None:
        """A server (server.service) serves the storage now.

        `traffic` counts the bytes on the server's connections.
        """
        self.service, self.pulse = service, Pulse(service.loop, traffic)

    def served_no_more(self) -> None:
        """Called when the server begins to end; may be called again."""
        self.service = None
        pulse, self.pulse = self.pulse, None
        if pulse is not None:
            pulse.end()

    def trouble(self) -> str | None:
        """Why the storage cannot be written, though it should; or None."""
        if self.storage is None:
            return None if self.node is None else str(self.node.trouble)
        if self.storage.has_stopped:
            return str(self.storage.stats()['writing_stopped'])
        replica = self.storage.replica
        waits: str | None = None if replica is None else replica.trouble
        return waits

    def trouble_as_node(self) -> str | None:
        """The same, but a node of a quorum that follows has none."""
        if self.storage is None and self.node is not None:
            why: str | None = self.node.why_not_following
            return why
        return self.trouble()

    def now(self) -> Reading | None:
        """The figures now; None if they cannot be read: other storages are
        shown nevertheless."""
        with self._said('figures'):
            return Reading(self.name, self.storage, self.service, self.node)
        return None

    def sample(self) -> None:
        """Called every `past.EVERY` seconds."""
        reading = self.now()
        if reading is not None:
            self.past.add(reading, time.monotonic())

    def clients(self) -> Any:
        """What its clients do (server.clients); None without a server, or if
        that cannot be read."""
        service = self.service  # another thread may set it to None
        with self._said('clients'):
            return None if service is None else service.clients()
        return None

    def _said(self, what: str) -> contextlib.AbstractContextManager[None]:
        return self._failures.said(
            f'the {what} of {self.name!r} could not be read')
