"""The options that measuring commands have in common, and how they are read.

A wrong value is refused in one line that says what is allowed.
"""

import argparse
import os

from ZConfig.datatypes import stock_datatypes

from fsyncstorage import durability

from . import custom

ROUNDS = 7, 3  # usual, and with --quick

#: More than any disk that is worth a measurement takes.
LONGEST_LATENCY = 1.0

#: Of a blob.
LARGEST_SIZE = 2 << 30

Wrong = argparse.ArgumentTypeError


class OneLineParser(argparse.ArgumentParser):
    """Without the usage, which is longer than the error that it hides."""

    def error(self, message):
        self.exit(2, f'{self.prog}: {message} (--help explains)\n')


def add_command(commands, name, summary, description, epilog=''):
    return commands.add_parser(
        name, help=summary, description=description, epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter)


def add_measuring(commands, name, summary, description, contestants, epilog):
    """The parser of a command, with what to measure, how often, where to."""
    width = max(map(len, contestants))
    listed = '\n'.join(
        f'  {one.name:{width}}  {one.summary}' for one in contestants.values())
    parser = add_command(
        commands, name, summary, description,
        f'contestants:\n{listed}\n\n{custom.HELP}\n\n{epilog}')

    def contestant(text):
        if text in contestants:
            return contestants[text]
        name, is_own, path = text.partition('=')
        if not is_own:
            raise Wrong(f'there is no {text!r}; allowed are'
                        f' {", ".join(contestants)}, and NAME=FILE')
        if name in contestants:
            raise Wrong(
                f'{name!r} is taken; give your storage another name')
        return _checked(custom.read, name, path)

    parser.set_defaults(all_contestants=list(contestants.values()))
    parser.add_argument(
        'contestants', nargs='*', type=contestant, metavar='CONTESTANT',
        help='what takes part; all of them unless you name some (see below);'
             ' the first is what the others are compared with')
    parser.add_argument(
        '--sync-latency', action='extend', type=_latencies, metavar='TIME,...',
        help='add this to every sync, to see what a slower disk would do:'
             ' 0,1ms,5ms measures with nothing added, with 1 and with 5 ms'
             ' (default: 0)')
    parser.add_argument(
        '--rounds', type=positive, metavar='R',
        help='how often each contestant is measured, after a warm-up'
             f' ({default(ROUNDS)})')
    parser.add_argument(
        '--quick', action='store_true',
        help='a rough answer in a minute or two: short samples, few rounds')
    parser.add_argument(
        '--directory', default=os.curdir, type=directory, metavar='DIR',
        help='measure the disk that this is on (default: the current'
             ' directory); the scratch directory that is made in it is always'
             ' removed')
    add_output(parser)
    return parser


def add_output(parser):
    parser.add_argument(
        '--json', type=new_file, metavar='FILE',
        help='write all samples and results to this file; when the run is'
             ' interrupted, what there is by then')


def default(choice):
    """How a usual value, and that of a quick run, are put."""
    usual, quick = (
        ','.join(map(str, value)) if isinstance(value, list) else value
        for value in choice)
    return f'default: {usual}, or {quick} with --quick'


def complete(parser, options, **defaults):
    """Fill in what depends on other options.

    The defaults are pairs: what is usual, and what it is in a quick run.
    """
    for name, (usual, quick) in {'rounds': ROUNDS, **defaults}.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else usual)
    # In the order given, each once.
    options.contestants = list(dict.fromkeys(
        options.contestants or options.all_contestants))
    if len({one.name for one in options.contestants}) < len(
            options.contestants):
        parser.error('two contestants have the same name')
    options.baseline = options.contestants[0]
    options.sync_latency = list(dict.fromkeys(options.sync_latency or [0.0]))
    if min(options.sync_latency) > 0 and not any(
            one.can_be_slowed for one in options.contestants):
        parser.error('--sync-latency: nothing that takes part can be slowed')


def counts(text):
    """Numbers of threads or clients, like 1,8,16."""
    return list(dict.fromkeys(positive(part) for part in text.split(',')))


def positive(text):
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise Wrong(f'must be a whole number from 1 on, not {text!r}')
    return number


def seconds(text):
    """How long something lasts, like 2 or 500ms."""
    found = _checked(durability.duration, text, 'a time')
    if not found:
        raise Wrong('must be more than 0')
    return found


def sizes(text):
    """Numbers of bytes, like 1KB,100KB."""
    try:
        found = list(map(stock_datatypes['byte-size'], text.split(',')))
    except ValueError:
        found = [0]
    if not 1 <= min(found) <= max(found) <= LARGEST_SIZE:
        raise Wrong(
            'must be numbers of bytes, or numbers with KB or MB, up to'
            f' {LARGEST_SIZE >> 20}MB, not {text!r}')
    return list(dict.fromkeys(found))


def _latencies(text):
    found = [_checked(durability.duration, part, 'a time')
             for part in text.split(',')]
    if max(found) > LONGEST_LATENCY:
        raise Wrong(f'must be at most 1s, not {text!r}')
    return found


def _checked(read, *arguments):
    """With its own words, which argparse keeps to itself otherwise."""
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
