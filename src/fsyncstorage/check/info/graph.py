"""What refers to what; and from that, how an object is reached from the root.

Objects are known by their numbers (objects).  Their references are in one
array, 4 bytes each.  For each object, 8 bytes say where its references begin
in that array.  The search for paths makes two more arrays, with 4 bytes for
each object; it reads nothing from the file.
"""

import typing
from array import array
from collections import deque

# Most objects of a path that is followed.  In a malicious file, each object
# may refer only to the next, which makes a path through all objects.
MOST_STEPS = 10_000
# Most objects of a path that are kept, half of them at each end.
LONGEST_PATH = 20


class Path(typing.NamedTuple):
    """The numbers of the objects of a path; some in its middle are left out.

    No objects and None if the path has more than `MOST_STEPS` objects.
    """
    steps: list
    left_out: int | None


class Graph:

    def __init__(self, count):
        # For one object after another: how many references it has, and then
        # these references.
        self._references = array('I', [0])
        self._starts = array('Q', [0]) * count

    def add(self, number, targets):
        """Add the references of an object; called once for each object."""
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
        for number in reached:      # it grows in this loop
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
    """The shortest paths from the root.

    `parents` has for each object the number of the one before it on this path,
    plus 1.  For the root this is the root itself.  0: the object cannot be
    reached.
    """

    def __init__(self, parents, root):
        self._parents = parents
        self._root = root

    def __contains__(self, number):
        return self._parents[number] != 0

    def parent(self, number):
        """The object before this one on its path; None if there is none."""
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
