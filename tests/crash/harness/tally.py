"""Counts images, and the kinds of problems that they have.

`Report` is a layer for the test runner that prints a tally after its last
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
        self._names = names
        self._images = collections.Counter()
        self._problems = collections.defaultdict(collections.Counter)
        self._seconds = 0.0

    @contextlib.contextmanager
    def timed(self):
        begun = time.monotonic()
        yield
        self._seconds += time.monotonic() - begun

    def count(self, key, problems):
        """One image; each kind of problem counts once."""
        self._images[key] += 1
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
        """Lines: the sum, and a part for each of the names."""
        lines = [f'{self._title}: {self._images.total()} images in'
                 f' {self._seconds:.0f} s; {self._words(lambda key: True)}']
        for place, name in enumerate(self._names):
            for value in dict.fromkeys(key[place] for key in self._images):
                lines.append(f'  {name} {value}: ' + self._part(
                    lambda key: key[place] == value))
        return '\n'.join(lines)

    def _part(self, belongs):
        images = sum(number for key, number in self._images.items()
                     if belongs(key))
        return f'{images} images; {self._words(belongs)}'

    def _words(self, belongs):
        kinds = collections.Counter()
        for key, problems in self._problems.items():
            if belongs(key):
                kinds += problems
        return ', '.join(f'{kinds[kind]} {kind}' for kind in KINDS
                         if kinds[kind]) or 'nothing wrong'


class Report:

    __bases__ = ()

    def __init__(self, module, *tally):
        self.__module__ = module
        self.__name__ = type(self).__name__
        self.tally = Tally(*tally)

    def tearDown(self):
        print('\n' + self.tally.summary())
