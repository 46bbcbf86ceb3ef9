"""The packs of one storage that is served, and forecasts of packs.

Each takes long, so it runs in a thread of its own, and nothing else waits for
it.  There is at most one pack and one forecast at a time, whatever clients ask
for.

A pack goes on when its client leaves.  A forecast is for its client alone, and
ends when the client leaves.

A storage of ours tells how far a pack is, and can cancel it.
"""

import functools
import logging
import time

from ZODB.POSException import Unsupported
from ZODB.serialize import referencesf

from ..pack.progress import Cancelled
from ..pack.progress import Untimely
from .threads import Threads

PACK, FORECAST = 'pack', 'forecast'
_TWICE = {PACK: 'Already packing',
          FORECAST: 'A forecast is under way already'}


class Left(Exception):
    """The client that wanted the forecast has left."""


class PacksOfService:
    """Belongs to the event loop."""

    def __init__(self, service):
        self._service = service
        #: What is under way, and for which session.
        self._under_way = {}
        self._threads = Threads(
            len(_TWICE), f'packs of {service.name}', service.post)

    def close(self):
        """What is under way ends as the storage closes."""
        self._threads.shutdown(within=0)

    @property
    def of_storage(self):
        if not hasattr(self._service.storage, 'packs'):
            raise Unsupported(
                'this storage tells nothing of its packs, and cannot cancel'
                ' them')
        return self._service.storage.packs

    def pack(self, session, pack_time, answer):
        """`answer` is sent when the pack is done; None: nobody waits."""
        storage = self._service.storage
        self._start(
            PACK, session, lambda: storage.pack(pack_time, referencesf),
            pack_time, answer)

    def forecast(self, session, pack_time, answer):
        packs = self.of_storage
        # Records of a wrapper differ from those in the file.
        if not hasattr(type(self._service.storage), 'packs'):
            raise Unsupported(
                'a dry run cannot read the records of this storage, which are'
                ' wrapped (compressed, for example); a pack can')

        def refuse():
            if not session.connected:
                raise Left

        self._start(
            FORECAST, session, lambda: packs.forecast(pack_time, refuse),
            pack_time, answer)

    def left(self, session):
        """This client has left."""
        if self._under_way.get(FORECAST) is session:
            # It may wait for a process, and notice nothing until that answers.
            self.of_storage.wake_forecast()

    def _start(self, kind, session, function, pack_time, answer):
        time.gmtime(pack_time)  # an error, if that is no time
        if kind in self._under_way:
            raise Untimely(_TWICE[kind])
        self._under_way[kind] = session
        self._threads.do(
            functools.partial(self._over, kind, session, answer), function)

    def _over(self, kind, session, answer, result, error):
        del self._under_way[kind]
        if error is not None and not isinstance(
                error, (Cancelled, Untimely, Left)):
            session.log(f'{kind} failed', logging.ERROR, exc_info=error)
        if kind == PACK:    # the size of the storage has changed
            self._service.broadcast_info()
        if answer is not None:
            answer.done(result, error)
