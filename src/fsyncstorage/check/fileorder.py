"""Positions in the order of the file, so that a disk is read in one direction.

There may be ten million positions, and as Python numbers they would take 40
bytes each.  So they are distributed over arrays, one for each slice of the
file, and each array is sorted only when its positions are needed.
"""

import array
import collections

# Bytes of a slice.  At most 330,000 records fit into it, so that at most this
# many positions are sorted at a time.
SLICE = 1 << 24


def in_file_order(positions):
    """Yield the positions in rising order.  Takes 8 bytes for each."""
    slices = collections.defaultdict(lambda: array.array('Q'))
    for position in positions:
        slices[position // SLICE].append(position)
    for number in sorted(slices):
        yield from sorted(slices.pop(number))
