"""Positions in the order of the file, so that a disk is read in one direction.

There may be ten million of them, and as numbers of Python they would take 40
bytes each.  So they are distributed over arrays, one for each slice of the
file, and each of these is sorted when it is its turn.
"""

import array
import collections

# A sorted slice has as many numbers as records fit in, at most: 330,000.
SLICE = 1 << 24


def in_file_order(positions):
    """Yield them in rising order.  Takes 8 bytes for each."""
    slices = collections.defaultdict(lambda: array.array('Q'))
    for position in positions:
        slices[position // SLICE].append(position)
    for number in sorted(slices):
        yield from sorted(slices.pop(number))
