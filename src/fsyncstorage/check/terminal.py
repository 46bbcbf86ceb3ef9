"""What the commands that read a Data.fs share: their files, and the terminal.

Errors are one line on standard error, progress is a bar there, and text that
comes from a file is printed without control characters.

A name on the command line may be that of anything, such as a pipe.  So a file
is opened without waiting, and its kind is checked before it is read.
"""

import argparse
import contextlib
import math
import os
import signal
import stat
import sys

from ZODB.blob import LAYOUT_MARKER
from ZODB.blob import LAYOUTS
from ZODB.blob import FilesystemHelper

from .. import datafile
from ..errors import DiskError
from ..format.seal import UnknownVersion
from ..version import own_version

try:
    from rich import progress
    from rich.console import Console
except ModuleNotFoundError:  # then there is no bar
    progress = None  # type: ignore[assignment]

# The exit status that a shell reports for a process which SIGPIPE has ended.
NOBODY_READS = 128 + signal.SIGPIPE
LONGEST_LAYOUT = 100
#: From here on a number of bytes is hard to read.
_LARGE = 10_000_000


class CannotRun(Exception):
    """The request cannot be carried out; the message says why."""


class NobodyReads(Exception):
    """Standard output is a pipe that has no reader any more."""


class CommandParser(argparse.ArgumentParser):
    """Prints errors without the usage, which would hide them."""

    def __init__(self, **options):
        super().__init__(
            **options, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.add_argument('--version', action='version',
                          version=f'{self.prog} {own_version()}')

    def error(self, message):
        self.exit(2, f'{self.prog}: {message} (--help explains)\n')


def exit_code(run, options, program):
    """Run it, and return its exit code; print an error as one line."""
    try:
        return run(options)
    except (CannotRun, DiskError) as error:
        message = str(error)
    except UnknownVersion as error:
        message = f'{options.path}: {error}'
    except OSError as error:
        message = (f'{error.filename or options.path}:'
                   f' {error.strerror or error}')
    except NobodyReads:
        return NOBODY_READS
    except KeyboardInterrupt:
        return 130
    print(f'{program}: {printable(message)}', file=sys.stderr)
    return 2


@contextlib.contextmanager
def output():
    """A context for printing: errors in it are errors of standard output.

    Like other programs, a command ends silently if nobody reads its output.
    """
    try:
        yield
        if sys.stdout:  # it can be closed
            sys.stdout.flush()
    except BrokenPipeError:
        raise NobodyReads from None
    except OSError as error:
        raise CannotRun(f'standard output: {error.strerror}') from None


@contextlib.contextmanager
def needing_rich(program):
    """For imports: end, if rich is missing, and say what brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not error.name.startswith('rich'):
            raise
        print(f"{program}: its tables need rich: pip install"
              " 'fsyncstorage[commands]'", file=sys.stderr)
        sys.exit(2)


@contextlib.contextmanager
def without_blanks(console):
    """Print what is printed on this console of rich, but without the blanks
    with which rich fills up lines: so it can be compared."""
    with console.capture() as printed:
        yield
    for line in printed.get().rstrip('\n').split('\n'):
        print(line.rstrip())


def opened(path):
    """Open the file, if it is a regular file."""
    file = datafile.DataFile(path, os.O_RDONLY | os.O_NONBLOCK)
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        kind = 'a directory' if stat.S_ISDIR(mode) else 'no regular file'
        raise CannotRun(f'{path} is {kind}; the path of a Data.fs is needed')
    _leave_the_cache_to_others(file.fileno())
    return file


def _leave_the_cache_to_others(number):
    """What is read only once here must not evict pages that a server needs.

    (The kernel is told that this open file does not use its pages again, so
    pages of others stay.  To drop what was read would drop their pages, too.)
    """
    if hasattr(os, 'posix_fadvise'):
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_NOREUSE)


def opened_blobs(path):
    """The FilesystemHelper of a blob directory."""
    if not os.path.isdir(path):
        raise CannotRun(f'{path!r} is no directory')
    return FilesystemHelper(path, _layout(os.path.join(path, LAYOUT_MARKER)))


def _layout(marker):
    """What the marker of a blob directory says."""
    try:
        file = datafile.DataFile(marker, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return 'automatic'
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise CannotRun(f'{marker} is no regular file')
        text = os.pread(file.fileno(), LONGEST_LAYOUT, 0)
    layout = text.decode('ascii', 'backslashreplace').strip()
    if layout not in LAYOUTS:
        raise CannotRun(f'{marker} names an unknown layout: {layout}')
    return layout


def was_replaced(path, file):
    """Has the file that we read lost its name?  A pack does that."""
    try:
        return not os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return True


def refuse_if_replaced(path, file):
    """Refuse: the pack removes blobs that belong to the file that we read."""
    if was_replaced(path, file):
        raise CannotRun(
            f'{path} was packed while it was read; run the command again')


@contextlib.contextmanager
def progress_bar(size, stages):
    """A function to report progress: on a terminal, it shows a bar.

    It is called with the name of a stage, for which `stages` has the words,
    and a position.  A stage that begins at an earlier position begins anew;
    another one goes on, and so does the estimate of the time that is left.
    """
    if progress is None:
        yield lambda stage, position: None
        return
    console = Console(stderr=True)
    bar = progress.Progress(
        progress.TextColumn('{task.description}'),
        progress.BarColumn(bar_width=None), progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(), console=console, auto_refresh=False,
        transient=True, expand=True, disable=not console.is_terminal,
        speed_estimate_period=math.inf)
    task = bar.add_task('', total=size)
    step = size // 200
    shown = None, 0

    def tell(stage, position):
        nonlocal shown
        if shown[0] != stage or abs(position - shown[1]) > step:
            if position < shown[1]:
                bar.reset(task)
            bar.update(task, completed=position, refresh=True,
                       description=stages[stage])
            shown = stage, position

    with bar:
        yield tell


def size_in_words(size):
    """To the byte, and so that people see how much it is."""
    scale, unit = (1e9, 'GB') if size >= 1e9 else (1e6, 'MB')
    rounded = f' ({size / scale:,.1f} {unit})' if size >= _LARGE else ''
    return f'{size:,} bytes{rounded}'


def printable(line):
    """Without control characters: text from a file must not control a
    terminal."""
    return ''.join(
        each if each.isprintable() else each.encode('unicode_escape').decode()
        for each in line)
