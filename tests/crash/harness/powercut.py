"""What is surely on the disk when the power goes, and what may be.

The model, as bad as POSIX allows within reason:

- Data are surely on the disk once a sync of their file succeeded that began
  after they were written.  Until then they may have got there or not
  (`tearing` says in which pieces), and so may the size of the file.
- A name (made, linked, renamed, removed) is surely on the disk once its
  directory was synced.  Until then each change of a name may have got there
  without any other; only a rename within one directory is atomic.  Of a rename
  between two directories, each half counts for itself.
- To sync a file does not keep its name; to sync a directory does not keep what
  is in its files.
- A sync that fails marks the pages clean that it could not write: what they
  contain may be on the disk or not, and no later sync changes that, until the
  page is written again.  When the cache is dropped, the file shows which; its
  size stays what it was.
- A sector that was synced stays whole while its neighbour is written.

Two more, which are weaker than POSIX, are not part of it, and are asked for:

- `torn_renames`: a rename within one directory is not atomic either.  That the
  old name goes, that the target loses what it named before, and that it names
  the new file, are on the disk or not each by itself.
- What a block of a file contained before the file had it (`File.stale`): what
  the same file had there before it was cut back, or a data file that is gone.
"""

import collections
import copy

from ZODB._compat import FILESTORAGE_MAGIC

from . import events

PAGE = 4096


class Change:
    """Of names, all in one directory, all or nothing."""

    def __init__(self, index, directory, names):
        self.index = index          # in the log
        self.directory = directory  # its number
        self.names = names          # name -> number or None


class Names:
    """The directories: what is surely there, and the changes since then."""

    ROOT = 0

    def __init__(self, torn_renames=False):
        self._torn_renames = torn_renames
        self.now = {self.ROOT: {}}      # number -> {name: number}
        self.durable = {self.ROOT: {}}
        self.pending = []
        self._unused = -1  # numbers of directories: not those of files

    def copy(self):
        other = Names(self._torn_renames)
        for name in 'now', 'durable':
            setattr(other, name, {number: dict(names) for number, names
                                  in getattr(self, name).items()})
        other.pending = self.pending[:]
        other._unused = self._unused
        return other

    def look_up(self, path):
        """Number of the directory that a path is in, and the name there."""
        *parents, name = path.split('/')
        directory = self.ROOT
        for parent in parents:
            directory = self.now[directory][parent]
        return directory, name

    def number(self, path):
        if not path:
            return self.ROOT
        directory, name = self.look_up(path)
        return self.now[directory][name]

    def change(self, index, *changes):
        """Each of the changes is a path and the number it gets, or None."""
        by_directory = collections.defaultdict(dict)
        for path, number in changes:
            directory, name = self.look_up(path)
            by_directory[directory][name] = number
        for directory, names in by_directory.items():
            _apply(self.now, directory, names)
            self.pending.append(Change(index, directory, names))

    def rename(self, index, source, target):
        number = self.number(source)
        if self._torn_renames:
            self.change(index, (source, None))
            if self.has(target):
                self.change(index, (target, None))
            self.change(index, (target, number))
        else:
            self.change(index, (source, None), (target, number))

    def has(self, path):
        directory, name = self.look_up(path)
        return name in self.now[directory]

    def names_of(self, number):
        """How many names it has now."""
        return sum(list(names.values()).count(number)
                   for names in self.now.values())

    def make_directory(self, index, path):
        self.now[self._unused] = {}
        self.durable[self._unused] = {}
        self.change(index, (path, self._unused))
        self._unused -= 1

    def synced(self, path, began):
        directory = self.number(path)
        for change in self.pending[:]:
            if change.directory == directory and change.index < began:
                _apply(self.durable, directory, change.names)
                self.pending.remove(change)

    def everything_is_written(self):
        self.durable = {number: dict(names)
                        for number, names in self.now.items()}
        self.pending.clear()

    def with_changes(self, changes):
        """The directories, if just these changes were kept."""
        directories = {number: dict(names)
                       for number, names in self.durable.items()}
        for change in changes:
            _apply(directories, change.directory, change.names)
        return directories

    def numbers(self):
        """The numbers of the files that may have a name."""
        return {
            number
            for names in [*self.durable.values(),
                          *(change.names for change in self.pending)]
            for number in names.values()
            if number is not None and number > 0
        }


def _apply(directories, directory, names):
    for name, number in names.items():
        if number is None:
            directories[directory].pop(name, None)
        else:
            directories[directory][name] = number


class File:
    """One file: its durable content, and the changes since then."""

    SIZE = -1   # in the place of a page

    def __init__(self, durable=b''):
        self.durable = durable
        self.changes = []   # Wrote and Truncated
        self.size = len(durable)    # after all of them
        #: What pages behind the durable end contained before: page -> bytes.
        self.stale = {}
        #: After a failed sync, while the changes before it are undecided:
        #: page (or SIZE) -> number of changes that it surely shows.
        self.floors = {}
        self._indices = []  # of the changes, in the log
        self._dirty = {}    # page -> first and last index since it was clean
        self._undecided = set()     # pages that a failed sync left

    def copy(self):
        other = File()
        for name, value in vars(self).items():
            setattr(other, name, copy.copy(value))
        return other

    def change(self, index, event):
        self.changes.append(event)
        self._indices.append(index)
        for page in self._pages(event):
            first, _ = self._dirty.get(page, (index, None))
            self._dirty[page] = first, index
        self.size = size_after(self.size, event)

    def grew_over(self, freed, size):
        """It had that size before the last change: what was in the pages that
        it got since?"""
        for page in range(pages_of(size), pages_of(self.size)):
            found = freed[page * PAGE:(page + 1) * PAGE]
            if found:
                self.stale[page] = bytes(found).ljust(PAGE, b'\0')

    def _pages(self, event):
        """What it makes dirty."""
        start, end = extent(self.size, event)
        pages = set(range(start // PAGE, -(-end // PAGE)))
        if size_after(self.size, event) != self.size:
            pages.add(self.SIZE)
        return pages

    def synced(self, began):
        count = self._count(began)
        for page in self._take_clean(began):
            self._undecided.discard(page)
            self.floors[page] = count
        if not self._undecided:
            self.durable = bytes(self.content(count))
            del self.changes[:count], self._indices[:count]
            self.floors.clear()

    def sync_failed(self, began):
        self._undecided.update(self._take_clean(began))

    def reread(self, content):
        """What was undecided, was decided so."""
        self.__init__(content)

    @property
    def is_dirty(self):
        return bool(self._dirty)

    def _take_clean(self, began):
        """The pages that a sync made clean, in success or not."""
        cleaned = []
        for page, (first, last) in list(self._dirty.items()):
            if first < began:
                cleaned.append(page)
                if last < began:
                    del self._dirty[page]
                else:
                    self._dirty[page] = began, last
        return cleaned

    def _count(self, began):
        return sum(index < began for index in self._indices)

    def content(self, count=None):
        """After that many of the changes (all)."""
        content = bytearray(self.durable)
        for event in self.changes[:count]:
            replay(content, event)
        return content


def size_after(size, event):
    if isinstance(event, events.Truncated):
        return event.size
    return max(size, event.position + len(event.data))


def pages_of(size):
    return -(-size // PAGE)


def extent(size, event):
    """From where to where an event changes a file of that size."""
    if isinstance(event, events.Truncated):
        return min(size, event.size), max(size, event.size)
    return min(size, event.position), event.position + len(event.data)


def replay(content, event):
    size = len(content)
    end = size_after(size, event)
    if end > size:
        content.extend(bytes(end - size))
    if isinstance(event, events.Truncated):
        del content[end:]
    else:
        content[event.position:event.position + len(event.data)] = event.data


class Disk:
    """The names and files, after some of the events of a log."""

    def __init__(self, torn_renames=False):
        self.names = Names(torn_renames)
        self.files = collections.defaultdict(File)
        #: What data files contained that are gone, or were cut back.
        self._freed = bytearray()

    def copy(self):
        other = Disk()
        other.names = self.names.copy()
        other._freed = self._freed[:]
        other.files.update(
            (number, file.copy()) for number, file in self.files.items())
        return other

    def everything_is_written(self):
        """As if everything was synced."""
        self.names.everything_is_written()
        for number, file in list(self.files.items()):
            self.files[number] = File(bytes(file.content()))

    @classmethod
    def after_all(cls, log, **model):
        disk = cls(**model)
        for index, event in enumerate(log):
            disk.after(index, event)
        return disk

    def after(self, index, event):
        """The next event happened."""
        match event:
            case events.Created(path, file):
                self.names.change(index, (path, file))
            case events.MadeDirectory(path):
                self.names.make_directory(index, path)
            case events.Linked(source, target):
                self.names.change(index, (target, self.names.number(source)))
            case events.Renamed(source, target):
                self._before_removal(target)
                self.names.rename(index, source, target)
            case events.Removed(path):
                self._before_removal(path)
                self.names.change(index, (path, None))
            case events.SyncedDirectory(path, began):
                self.names.synced(path, began)
            case events.Wrote(file) | events.Truncated(file):
                self._change(self.files[file], index, event)
            case events.Synced(file, began):
                self.files[file].synced(began)
            case events.SyncFailed(file, began):
                self.files[file].sync_failed(began)
            case events.Reread(file, content):
                self.files[file].reread(content)

    def _change(self, file, index, event):
        size = file.size
        if size_after(size, event) < size:
            self._free(file.content())
        file.change(index, event)
        file.grew_over(self._freed, size)

    def _before_removal(self, path):
        if self.names.has(path):
            number = self.names.number(path)
            if number > 0 and self.names.names_of(number) == 1:
                self._free(self.files[number].content())

    def _free(self, content):
        if content.startswith(FILESTORAGE_MAGIC):
            self._freed[:len(content)] = content
