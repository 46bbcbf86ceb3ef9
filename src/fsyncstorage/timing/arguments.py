"""The options that commands have in common, and how values are read.

A wrong value is refused in one line that says what is allowed.
"""

import argparse
import os
import typing

from fsyncstorage.commit import policies

from . import contestants
from .results import tables
from .running import sampling

#: The largest size of a blob.
LARGEST_SIZE = 2 << 30

Wrong = argparse.ArgumentTypeError


class Default(typing.NamedTuple):
    """The value of an option that is not given."""

    usual: typing.Any
    quick: typing.Any

    def __str__(self):
        """The text for the help."""
        usual, quick = (
            ','.join(map(str, value)) if isinstance(value, list) else value
            for value in self)
        return f'{usual}, or {quick} with --quick'


class Command(typing.NamedTuple):
    """A command that measures contestants."""

    name: str
    summary: str
    description: str
    #: Those that take part unless others are named.
    contestants: dict
    #: The rest of a command line.
    example: str
    #: Called with the options, when all of them are known.
    races: typing.Callable
    #: The keywords of `add_argument`, by option: what only this command has.
    options: dict

    def add_to(self, commands):
        width = max(map(len, self.contestants))
        listed = '\n'.join(f'  {one.name:{width}}  {one.summary}'
                           for one in self.contestants.values())
        parser = commands.add_parser(
            self.name, help=self.summary, description=self.description,
            epilog=f'contestants:\n{listed}\n\n{contestants.HELP}\n'
                   f'example:\n  fsync-time {self.name} {self.example}')

        def run(options):
            _complete(parser, options)
            return sampling.run(
                options, self.name, self.races(options), tables.show)

        parser.set_defaults(run=run)
        parser.add_argument(
            'contestants', nargs='*', type=self._contestant,
            metavar='CONTESTANT', default=self.contestants.values(),
            help='what takes part; all of them unless you name some (see'
                 ' below); the first is what the others are compared with')
        for name, keywords in {**COMMON, **self.options, **OUTPUT}.items():
            parser.add_argument(name, **keywords)

    def _contestant(self, text):
        if text in self.contestants:
            return self.contestants[text]
        name, is_own, path = text.partition('=')
        if not is_own:
            raise Wrong(f'there is no {text!r}; allowed are'
                        f' {", ".join(self.contestants)}, and NAME=FILE')
        if name in self.contestants:
            raise Wrong(
                f'{name!r} is taken; give your storage another name')
        return _checked(contestants.read, name, path)


def _complete(parser, options):
    """Fill in what depends on other options, and check what takes part."""
    for name, value in vars(options).items():
        if isinstance(value, Default):
            setattr(options, name, value[options.quick])
    # Each once, in the order given.
    options.contestants = list(dict.fromkeys(options.contestants))
    if len({one.name for one in options.contestants}) < len(
            options.contestants):
        parser.error('two contestants have the same name')


def several(read):
    """Read values that commas separate: each once, in the order given."""
    return lambda text: list(dict.fromkeys(map(read, text.split(','))))


def positive(text):
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise Wrong(f'must be a whole number, at least 1, not {text!r}')
    return number


def seconds(text):
    """How long something lasts, like 2 or 500ms."""
    found = _duration(text)
    if not found:
        raise Wrong('must be more than 0')
    return found


def size(text):
    """A number of bytes, like 100KB."""
    found = _checked(policies.number_of_bytes, text, 'a size')
    if not 1 <= found <= LARGEST_SIZE:
        raise Wrong(f'must be up to {LARGEST_SIZE >> 20}MB, not {text!r}')
    return found


def _duration(text):
    """Seconds.  On a command line, a number alone is a number of seconds."""
    if text.replace('.', '', 1).isdecimal():
        text += 's'
    return _checked(policies.duration, text, 'a time')


def _checked(read, *arguments):
    """Read it; an error keeps its words, which argparse would not show."""
    try:
        return read(*arguments)
    except ValueError as error:
        raise Wrong(str(error)) from None


def directory(path):
    if not os.path.isdir(path):
        raise Wrong(f'{path!r} is no directory')
    if not os.access(path, os.W_OK | os.X_OK):
        raise Wrong(f'{path!r} cannot be written to')
    return path


def new_file(path):
    if os.path.lexists(path) and (
            os.path.islink(path) or not os.path.isfile(path)):
        raise Wrong(f'{path!r} is no plain file')
    directory(os.path.dirname(path) or os.curdir)
    return path


COMMON = {
    '--sync-latency': dict(
        type=several(_duration), default=[0.0], metavar='TIME,...',
        help='add this to every sync, to see what a slower disk would do:'
             ' 0,1ms,5ms measures with nothing added, with 1 and with 5 ms'
             ' (default: 0)'),
    '--rounds': dict(
        type=positive, default=Default(7, 3), metavar='R',
        help='how many times each contestant is measured, after a warm-up'
             ' (default: %(default)s)'),
    '--quick': dict(
        action='store_true',
        help='a rough answer in a minute or two: short samples, few rounds'),
    '--directory': dict(
        default=os.curdir, type=directory, metavar='DIR',
        help='measure the disk that this is on (default: the current'
             ' directory); the scratch directory that is made in it is always'
             ' removed'),
}

OUTPUT = {
    '--json': dict(
        type=new_file, metavar='FILE',
        help='write all samples to this file; an interrupted run writes those'
             ' that it has'),
}
