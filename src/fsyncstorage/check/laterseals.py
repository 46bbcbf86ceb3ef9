"""What later seals prove to have been durable.

A seal says how much of the file was durable when it was made.  If a seal
behind a damaged place proves that this place was on the disk, the damage is
not a torn tail.
"""

from ..format import sealsearch


class LaterSeals:
    """The seals behind a position.  The file is read once.

    Only those seals are kept that no later seal exceeds.  `durable` must be
    called with rising positions.
    """

    def __init__(self, window, start):
        self._seals = []
        for position, found in sealsearch.find_sound_seals(window, start):
            while self._seals and self._seals[-1][1] <= found.durable:
                self._seals.pop()
            self._seals.append((position, found.durable))
        self._seals.reverse()

    def durable(self, position):
        """The greatest position in a seal behind this one; None: no seal."""
        while self._seals and self._seals[-1][0] <= position:
            self._seals.pop()
        return self._seals[-1][1] if self._seals else None
