"""Calls to our server about packs, in addition to `pack` itself.

The methods are those of a storage (`FsyncStorage.packs`).
"""

from collections.abc import Callable
from typing import Any


class Packs:

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def status(self) -> dict[str, Any]:
        """The progress of a pack and a forecast; how the last pack ended."""
        return self._call('pack_status')

    def cancel(self) -> None:
        """End the pack that is under way."""
        self._call('pack_cancel')

    def forecast(self, t: float) -> dict[str, Any]:
        """What a pack to this time would free, and need."""
        return self._call('pack_forecast', t)
