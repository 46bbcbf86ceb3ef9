"""What workers note of their commits: one line each, in a file of each.

    + MARK TIME TID OID         acknowledged
    - MARK TIME WHY             it is not committed, and never will be
    ? MARK TIME WHY             nobody knows
    = MARK TIME                 read, and all was right
    ! MARK TIME WHY             something was not right

TIME is that of the machine's monotonic clock.
"""

import os
import typing

ACKNOWLEDGED, REFUSED, UNKNOWN, READ, WRONG = '+-?=!'


class Note(typing.NamedTuple):

    kind: str
    mark: str
    time: float
    rest: str

    @property
    def worker(self):
        return self.mark.rpartition(':')[0]


class Written:
    """The file of a worker."""

    def __init__(self, path):
        self._file = open(path, 'a', buffering=1)

    def add(self, kind, mark, time, *rest):
        self._file.write(' '.join(
            [kind, mark, f'{time:.3f}', *map(_one_line, rest)]) + '\n')

    def close(self):
        self._file.close()


def _one_line(text):
    return ' '.join(str(text).split())[:400]


class Read:
    """All files of a directory, as they grow."""

    def __init__(self, directory):
        self._directory = directory
        self._places = {}

    def new(self):
        """What was noted since the last call."""
        found = []
        for name in sorted(os.listdir(self._directory)):
            with open(os.path.join(self._directory, name), 'rb') as file:
                file.seek(self._places.get(name, 0))
                whole, ending, _ = file.read().rpartition(b'\n')
            self._places[name] = (
                self._places.get(name, 0) + len(whole) + len(ending))
            for line in whole.decode().splitlines():
                kind, mark, time, *rest = line.split(' ', 3)
                found.append(Note(kind, mark, float(time), ''.join(rest)))
        return found
