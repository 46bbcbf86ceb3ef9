"""Counts images, and the kinds of problems that they have.

`Report` is a layer for the test runner that prints the sum after its last
test.
"""

import collections
import contextlib
import time

from .judge import KINDS


class Tally:

    def __init__(self, title, *names):
        """The names are those of what an image is counted under."""
        self._title = title
        self._images = 0
        self._problems = collections.defaultdict(collections.Counter)
        self._seconds = 0.0

    @contextlib.contextmanager
    def timed(self):
        begun = time.monotonic()
        yield
        self._seconds += time.monotonic() - begun

    def count(self, key, problems):
        """One image; each kind of problem counts once."""
        self._images += 1
        self._problems[key].update({problem.kind for problem in problems})

    def count_all(self, trial, *key):
        """All images of a trial, under this key and the model.

        Return how many there were, and what was wrong: kind -> words.
        """
        number, wrong = 0, {}
        with self.timed():
            for model, case, problems in trial:
                self.count((*key, model), problems)
                number += 1
                for problem in problems:
                    wrong.setdefault(
                        problem.kind, f'{problem.words} ({case.words})')
        return number, wrong

    def found(self, kinds, under=None):
        """How often these kinds were found, under one of these names."""
        return sum(problems[kind]
                   for key, problems in self._problems.items()
                   if under is None or set(key) & set(under)
                   for kind in kinds)

    def summary(self):
        found = collections.Counter()
        for problems in self._problems.values():
            found += problems
        words = ', '.join(f'{found[kind]} {kind}' for kind in KINDS
                          if found[kind]) or 'nothing wrong'
        return (f'{self._title}: {self._images} images in'
                f' {self._seconds:.0f} s; {words}')


class Report:

    __bases__ = ()

    def __init__(self, module, *tally):
        self.__module__ = module
        self.__name__ = type(self).__name__
        self.tally = Tally(*tally)

    def tearDown(self):
        print('\n' + self.tally.summary())
