"""The packs of one storage that is served, and forecasts of packs.

Each takes long, so it has a thread of its own, which others need not wait for:
at most one for a pack and one for a forecast, whatever clients ask for.

A pack goes on when its client leaves.  A forecast is for its client alone, and
ends with it.

A storage of ours tells how far they are, and can cancel a pack; this is
*offered* to clients, in `get_info`.
"""

import logging
import threading
import time

from ZODB.FileStorage.FileStorage import FileStorageError
from ZODB.POSException import Unsupported
from ZODB.serialize import referencesf

from ..pack.progress import Cancelled
from . import answers

PACK, FORECAST = 'pack', 'forecast'
_TWICE = {PACK: 'Already packing',
          FORECAST: 'A forecast is under way already'}
_FAILED = {PACK: 'pack failed', FORECAST: 'forecast failed'}


def _refuse_what_is_no_time(pack_time):
    """At once, without a thread: ValueError, OverflowError or OSError."""
    time.gmtime(pack_time)


class Left(Exception):
    """The client that wanted it has left."""


class Packs:
    """Belongs to the event loop."""

    def __init__(self, service):
        self._service = service
        #: What is under way, and for which session.
        self._under_way = {}

    @property
    def are_offered(self):
        return hasattr(self._service.storage, 'packs')

    @property
    def foretell(self):
        """Whether a forecast is right: not of a storage that is wrapped, and
        whose records are others than those in the file."""
        return hasattr(type(self._service.storage), 'packs')

    @property
    def of_storage(self):
        if not self.are_offered:
            raise Unsupported(
                'this storage tells nothing of its packs, and cannot cancel'
                ' them')
        return self._service.storage.packs

    def pack(self, session, pack_time):
        storage = self._service.storage
        _refuse_what_is_no_time(pack_time)
        return self._start(
            PACK, session, lambda: storage.pack(pack_time, referencesf))

    def forecast(self, session, pack_time):
        packs = self.of_storage
        if not self.foretell:
            raise Unsupported(
                'a dry run cannot read the records of this storage, which are'
                ' wrapped (compressed, for example); a pack can')

        _refuse_what_is_no_time(pack_time)

        def refuse():
            if not session.connected:
                raise Left

        return self._start(
            FORECAST, session, lambda: packs.forecast(pack_time, refuse))

    def left(self, session):
        """This client has left."""
        if self._under_way.get(FORECAST) is session:
            # It may wait for a process that says nothing.
            self.of_storage.wake_forecast()

    def _start(self, kind, session, function):
        """Return the answer, which comes when it is over."""
        if kind in self._under_way:
            raise FileStorageError(_TWICE[kind])
        answer = answers.Later()
        thread = threading.Thread(
            target=self._run, args=(kind, session, function, answer),
            daemon=True, name=f'{kind} of {self._service.name}')
        self._under_way[kind] = session
        try:
            thread.start()
        except BaseException:  # there may be no thread left
            del self._under_way[kind]
            raise
        return answer

    def _run(self, kind, session, function, answer):
        result = error = None
        try:
            result = function()
        except BaseException as raised:  # else it would never be over
            error = raised
            if not isinstance(error, (Cancelled, Left)):
                session.log(_FAILED[kind], logging.ERROR, exc_info=True)
        session.server.mailbox.post(self._over, kind, answer, result, error)

    def _over(self, kind, answer, result, error):
        del self._under_way[kind]
        if kind == PACK:    # the size has changed
            self._service.broadcast_info()
        answer.done(result, error)
