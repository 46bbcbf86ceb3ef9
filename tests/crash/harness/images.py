"""The directories that a power cut can leave, all of them or a sample.

A `Space` is everything that one cut can leave under one model of tearing: for
each change of a name, kept or lost; for each piece of a file, how far it got.
A *choice* has one entry for each of these; `choices` yields all of them where
they are few, else the corners (all lost, all kept, each one lost, each one
alone kept), and then a sample, the same in each run.
"""

import collections
import itertools
import math
import os
import typing

from .recorder import IGNORED


class Image(typing.NamedTuple):
    """A directory after a power cut."""

    directories: frozenset  # paths
    files: frozenset        # (path, content)
    #: (path, other path): two of these are names of one file.
    links: frozenset = frozenset()

    @classmethod
    def read(cls, source):
        """The image of a directory, without what is not recorded."""
        directories, files, names = set(), set(), _Names()
        for parent, their_directories, their_files in os.walk(source):
            for name in their_directories:
                path = os.path.join(parent, name)
                directories.add(os.path.relpath(path, source))
            for name in their_files:
                path = os.path.join(parent, name)
                if not path.endswith(IGNORED):
                    inside = os.path.relpath(path, source)
                    with open(path, 'rb') as file:
                        files.add((inside, file.read()))
                    names.add(inside, os.stat(path).st_ino)
        return cls(frozenset(directories), frozenset(files), names.links())

    def write(self, target):
        os.mkdir(target)
        for path in sorted(self.directories):
            os.mkdir(os.path.join(target, path))
        links = dict(self.links)
        for path, content in self.files:
            if path not in links:
                with open(os.path.join(target, path), 'wb') as file:
                    file.write(content)
        for path, other in self.links:
            os.link(os.path.join(target, other), os.path.join(target, path))


class _Names:
    """Which paths are names of one file?"""

    def __init__(self):
        self._paths = collections.defaultdict(list)  # by file

    def add(self, path, file):
        self._paths[file].append(path)

    def links(self):
        return frozenset(
            (path, others[0]) for others in map(sorted, self._paths.values())
            for path in others[1:])


class Space:

    def __init__(self, disk, model):
        self._names = disk.names
        self._changes = list(disk.names.pending)
        self._whole = {}
        self._torn = []
        self.options = [2] * len(self._changes)
        for number in sorted(disk.names.numbers()):
            file = disk.files[number]
            if file.changes:
                torn = model.tear(file)
                self._torn.append((number, torn))
                self.options += torn.options
            else:
                self._whole[number] = bytes(file.durable)
        self.size = math.prod(self.options)

    def image(self, choice):
        choice = iter(choice)
        kept = [change for change in self._changes if next(choice)]
        contents = dict(self._whole)
        for number, torn in self._torn:
            contents[number] = torn.content(
                list(itertools.islice(choice, len(torn.options))))
        directories, files, names = set(), set(), _Names()
        self._walk(self._names.with_changes(kept), contents, self._names.ROOT,
                   '', directories, files, names)
        return Image(frozenset(directories), frozenset(files), names.links())

    def _walk(self, tree, contents, directory, path, directories, files,
              names):
        for name, number in tree[directory].items():
            inside = os.path.join(path, name)
            if number < 0:
                directories.add(inside)
                self._walk(tree, contents, number, inside, directories, files,
                           names)
            else:
                files.add((inside, contents[number]))
                names.add(inside, number)


def choices(options, limit, random):
    """Choices for these numbers of options, at most about `limit`."""
    if math.prod(options) <= limit:
        yield from itertools.product(*map(range, options))
        return
    lost, kept = [0] * len(options), [number - 1 for number in options]
    yield lost
    yield kept
    for piece in range(len(options)):
        yield [*kept[:piece], 0, *kept[piece + 1:]]
        yield [*lost[:piece], kept[piece], *lost[piece + 1:]]
    while True:
        yield at_random(options, random)


def at_random(options, random):
    """Mostly lost, mostly kept, or mixed."""
    chance = random.choice((0.1, 0.5, 0.9))
    choice = []
    for number in options:
        if number > 2 and random.random() < 0.5:
            choice.append(random.randrange(number))
        else:
            choice.append(number - 1 if random.random() < chance else 0)
    return choice
