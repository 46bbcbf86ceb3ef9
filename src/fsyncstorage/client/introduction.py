"""What a client tells the server about itself, for the server's operator: its
version, and whether it reads locally.

Only a server that has read channels of our version is told, since another one
may not know the call.  Nothing depends on it, and nobody waits for the answer.
"""

import contextlib

from .. import wire
from ..version import own_version


class Introduction:

    def __init__(self, loop, call, about):
        """`call(method, arguments)` sends to that server, in the loop; `about`
        is what the server has told about itself."""
        self._loop = loop
        self._call = call
        self._may_know = about.get('channel') == wire.VERSION
        self._reads_locally = False
        self._say()

    def end(self):
        """The connection to that server ends (in the loop)."""
        self._may_know = False

    def reads_locally(self, does):
        """Note whether the client reads locally now; called in any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._changed, does)

    # In the loop

    def _changed(self, does):
        if does != self._reads_locally:
            self._reads_locally = does
            self._say()

    def _say(self):
        if self._may_know:
            self._call('about_client', (own_version(), self._reads_locally))
