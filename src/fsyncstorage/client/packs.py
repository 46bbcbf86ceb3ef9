"""Calls to our server about packs, in addition to `pack` itself.

The methods are those of a storage (`FsyncStorage.packs`).
"""

from collections.abc import Callable
from typing import Any

from ZODB.POSException import Unsupported


class Packs:

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        #: As the server said when the client connected.
        self.are_offered = False

    def status(self) -> dict[str, Any]:
        """The progress of a pack and a forecast; how the last pack ended."""
        return self._ask('pack_status')

    def cancel(self) -> None:
        """End the pack that is under way."""
        self._ask('pack_cancel')

    def forecast(self, t: float) -> dict[str, Any]:
        """What a pack to this time would free, and need."""
        return self._ask('pack_forecast', t)

    def _ask(self, method: str, *arguments: Any) -> Any:
        if not self.are_offered:
            # A server that does not know the call would end the connection.
            raise Unsupported(
                'this server, or its storage, is not ours: it can pack, but'
                ' tells nothing of packs, and cannot cancel them')
        return self._call(method, *arguments)
