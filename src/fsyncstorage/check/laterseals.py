"""What was durable when later transactions were sealed.

A seal says how much of the file was durable when it was made.  A check asks,
of a place that is damaged, whether one behind it vouches for that place: then
it was on the disk, and what is there is no torn tail.
"""

from ..format import scan


class LaterSeals:
    """What the seals behind a place know to have been durable.

    The file is read once.  Kept are those seals that no later one exceeds;
    in a file that is sound, the last.  Places are asked for in rising order.
    """

    def __init__(self, window, start):
        self._seals = []
        for position, found in scan.find_sound_seals(window, start):
            while self._seals and self._seals[-1][1] <= found.durable:
                self._seals.pop()
            self._seals.append((position, found.durable))
        self._seals.reverse()

    def durable(self, position):
        """The most that a seal behind it says; None if there is none."""
        while self._seals and self._seals[-1][0] <= position:
            self._seals.pop()
        return self._seals[-1][1] if self._seals else None
