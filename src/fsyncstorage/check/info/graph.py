"""What refers to what, and so: how an object is reached from the root.

Objects are known by their numbers (objects).  Their references are in one
array, 4 bytes each, and 8 bytes an object tell where they begin there; two
more arrays of 4 bytes an object are made to look for the paths.  Nothing is
read from the file for that.
"""

import typing
from array import array
from collections import deque

# Objects of a path that is followed: in a file that was made to do harm, each
# object may hang on the one before.
MOST_STEPS = 10_000
# Objects of a path that are kept, half of them at each end.
LONGEST_PATH = 20


class Path(typing.NamedTuple):
    """The numbers of objects, without those in the middle that are left out.

    No objects and None, if it has more than `MOST_STEPS`.
    """
    steps: list
    left_out: int | None


class Graph:

    def __init__(self, count):
        # Number of references, and then these, of one object after another.
        self._references = array('I', [0])
        self._starts = array('Q', [0]) * count

    def add(self, number, targets):
        """The references of an object, once for each object."""
        if targets:
            self._starts[number] = len(self._references)
            self._references.append(len(targets))
            self._references.extend(targets)

    def reached_from(self, root):
        """The `Paths` to everything that can be reached from there."""
        references, starts = self._references, self._starts
        parents = array('I', [0]) * len(starts)
        parents[root] = root + 1
        reached = array('I', [root])
        for number in reached:      # it grows meanwhile
            start = starts[number]
            if not start:
                continue
            start += 1
            for target in references[start:start + references[start - 1]]:
                if not parents[target]:
                    parents[target] = number + 1
                    reached.append(target)
        return Paths(parents, root)


class Paths:
    """The shortest ways from the root.

    `parents` has, of each object, the one before it on this way, plus 1; of
    the root, the root itself; 0, if it cannot be reached.
    """

    def __init__(self, parents, root):
        self._parents = parents
        self._root = root

    def __contains__(self, number):
        return self._parents[number] != 0

    def parent(self, number):
        """The one that refers to it; None, if none does."""
        parent = self._parents[number]
        return parent - 1 if parent and number != self._root else None

    def path(self, number):
        """The `Path` from the root to the object, both included.

        None, if it cannot be reached.
        """
        if number not in self:
            return None
        half = LONGEST_PATH // 2
        near, far = [], deque(maxlen=half)
        for count in range(1, MOST_STEPS + 1):
            (near if count <= half else far).append(number)
            number = self.parent(number)
            if number is None:
                return Path([*reversed(far), *reversed(near)],
                            count - len(near) - len(far))
        return Path([], None)
