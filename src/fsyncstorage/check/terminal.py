"""What the commands that read a Data.fs share: their files, and the terminal.

Errors are one line on standard error, progress is a bar there, and text that
comes from a file is printed without control characters.
"""

import argparse
import contextlib
import os
import stat
import sys

from rich import progress
from rich.console import Console
from ZODB.blob import FilesystemHelper

from .. import datafile
from ..errors import DiskError


class CannotRun(Exception):
    """The request cannot be carried out; the message says why."""


class CommandParser(argparse.ArgumentParser):
    """Prints errors without the usage, which would hide them."""

    def error(self, message):
        self.exit(2, f'{self.prog}: {message} (--help explains)\n')


def exit_code(run, options, program):
    """Run it; an error is a line on standard error."""
    try:
        return run(options)
    except (CannotRun, DiskError) as error:
        message = str(error)
    except OSError as error:
        message = f'{error.filename or options.path}: {error.strerror}'
    except KeyboardInterrupt:
        return 130
    print(f'{program}: {printable(message)}', file=sys.stderr)
    return 2


def opened(path):
    """Open the file, if it is one."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        kind = 'a directory' if stat.S_ISDIR(mode) else 'no regular file'
        raise CannotRun(f'{path} is {kind}; the path of a Data.fs is needed')
    return datafile.open_existing(path, read_only=True)


def opened_blobs(path):
    """The FilesystemHelper of a blob directory."""
    if not os.path.isdir(path):
        raise CannotRun(f'{path} is no directory')
    try:
        return FilesystemHelper(path)
    except KeyError as layout:
        raise CannotRun(f'{path} has an unknown layout: {layout}') from None


def refuse_if_replaced(path, file):
    """A pack replaces the file that we read, and removes blobs."""
    if not os.path.samestat(os.stat(path), os.fstat(file.fileno())):
        raise CannotRun(
            f'{path} was packed while it was read; run the command again')


@contextlib.contextmanager
def progress_bar(size, stages):
    """A function to report progress: on a terminal, it shows a bar.

    It is called with the name of a stage, for which `stages` has the words,
    and a position.
    """
    console = Console(stderr=True)
    bar = progress.Progress(
        progress.TextColumn('{task.description}'),
        progress.BarColumn(bar_width=None), progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(), console=console, auto_refresh=False,
        transient=True, expand=True, disable=not console.is_terminal)
    task = bar.add_task('', total=size)
    step = size // 200
    shown = None, 0

    def tell(stage, position):
        nonlocal shown
        if shown[0] != stage or abs(position - shown[1]) > step:
            if shown[0] != stage:
                bar.reset(task, description=stages[stage])
            bar.update(task, completed=position, refresh=True)
            shown = stage, position

    with bar:
        yield tell


def printable(line):
    """Without control characters: text of a file must not steer a terminal."""
    return ''.join(
        each if each.isprintable() else each.encode('unicode_escape').decode()
        for each in line)
