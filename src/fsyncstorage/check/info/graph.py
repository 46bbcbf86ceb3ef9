"""What refers to what, and so: how an object is reached from the root.

Objects are known by their numbers (objects).  Their references are in one
array, 4 bytes each, and 8 bytes an object tell where they begin there; two
more arrays of 4 bytes an object are made to look for the paths.  Nothing is
read from the file for that.
"""

from array import array

# Objects of a path that is followed: in a file that was made to do harm, each
# object may hang on the one before.
MOST_STEPS = 10_000


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
        """From the root to the object, both included.

        None, if it cannot be reached, or not in `MOST_STEPS`.
        """
        if number not in self:
            return None
        steps = [number]
        while (parent := self.parent(number)) is not None:
            steps.append(parent)
            number = parent
            if len(steps) > MOST_STEPS:
                return None
        steps.reverse()
        return steps
