"""The options that every measuring command has, and how they are read.

A wrong value is refused in one line that says what is allowed.
"""

import argparse
import importlib.util
import os

from ZConfig.datatypes import stock_datatypes

from fsyncstorage import durability

from . import custom

DEFAULT_ROUNDS = 7
QUICK_ROUNDS = 3

#: More than any disk that is worth a measurement takes.
LONGEST_LATENCY = 1.0

#: More in one transaction would be a measurement of memory.
LARGEST_SIZE = 10 << 20


class OneLineParser(argparse.ArgumentParser):
    """Without the usage, which is longer than the error that it hides."""

    def error(self, message):
        self.exit(2, f'{self.prog}: {message} (--help explains)\n')


def add_common(parser, contestants):
    """What to measure, how often, and where to.

    The first of the contestants is what the others are compared with.
    """

    def contestant(name):
        if name in contestants:
            return contestants[name]
        if '=' in name:
            return _custom(name, contestants)
        raise argparse.ArgumentTypeError(
            f'there is no {name!r}; allowed are {", ".join(contestants)},'
            ' and NAME=FILE')

    parser.set_defaults(all_contestants=list(contestants.values()))
    parser.add_argument(
        'contestants', nargs='*', type=contestant, metavar='CONTESTANT',
        help='what takes part; all of them unless you name some (see below)')
    parser.add_argument(
        '--sync-latency', action='extend', type=_latencies, metavar='TIME,...',
        help='add this to every sync, to see what a slower disk would do:'
             ' 0,1ms,5ms measures with nothing added, with 1 and with 5 ms'
             ' (default: 0)')
    parser.add_argument(
        '--rounds', type=positive, metavar='R',
        help='how often each contestant is measured, after a warm-up'
             f' (default: {DEFAULT_ROUNDS})')
    parser.add_argument(
        '--repeats', type=positive, default=1, metavar='N',
        help='in each round measure each contestant so often, in turn, and'
             ' take the mean: for differences that the noise hides'
             ' (default: 1)')
    parser.add_argument(
        '--quick', action='store_true',
        help='a rough answer in a minute or two: short samples and'
             f' {QUICK_ROUNDS} rounds')
    parser.add_argument(
        '--baseline', metavar='CONTESTANT',
        help='the name of what the others are compared with (default:'
             f' {next(iter(contestants))}, or the first that takes part)')
    parser.add_argument(
        '--directory', default=os.curdir, type=directory, metavar='DIR',
        help='measure the disk that this is on (default: the current'
             ' directory); the scratch directory that is made in it is always'
             ' removed')
    add_output(parser)


def add_output(parser):
    """Where the results go, besides the terminal."""
    parser.add_argument(
        '--json', type=new_file, metavar='FILE',
        help='write all samples and results to this file; when the run is'
             ' interrupted, what there is by then')
    parser.add_argument(
        '--plot', type=_pictures, metavar='DIR',
        help='draw pictures of the results into this directory, as PNG and'
             ' as SVG (needs matplotlib)')


def complete(parser, options):
    """Fill in what depends on other options."""
    # In the order given, each once.
    options.contestants = list(dict.fromkeys(
        options.contestants or options.all_contestants))
    by_name = {one.name: one for one in options.contestants}
    if len(by_name) < len(options.contestants):
        parser.error('two contestants have the same name')
    options.sync_latency = list(dict.fromkeys(options.sync_latency or [0.0]))
    if options.rounds is None:
        options.rounds = QUICK_ROUNDS if options.quick else DEFAULT_ROUNDS
    if options.baseline is None:
        default = options.all_contestants[0]
        options.baseline = (
            default if default in options.contestants
            else options.contestants[0])
    elif options.baseline in by_name:
        options.baseline = by_name[options.baseline]
    else:
        parser.error(
            f'the baseline {options.baseline} does not take part;'
            ' name it among the contestants')
    if min(options.sync_latency) > 0 and not any(
            one.can_be_slowed for one in options.contestants):
        parser.error('--sync-latency: nothing that takes part can be slowed')


def contestants_help(contestants):
    width = max(map(len, contestants))
    return 'contestants:\n' + '\n'.join(
        f'  {name:{width}}  {contestant.summary}'
        for name, contestant in contestants.items()) + f'\n\n{custom.HELP}'


def counts(text):
    """Numbers of threads or clients, like 1,8,16."""
    return list(dict.fromkeys(positive(part) for part in text.split(',')))


def positive(text):
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(
            f'must be a whole number from 1 on, not {text!r}')
    return number


def seconds(text):
    """How long something lasts, like 2 or 500ms."""
    try:
        found = durability.duration(text, 'a time')
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not found:
        raise argparse.ArgumentTypeError('must be more than 0')
    return found


def sizes(text, least=0, most=LARGEST_SIZE):
    """Numbers of bytes, like 0,1KB,100KB."""
    try:
        found = [stock_datatypes['byte-size'](part)
                 for part in text.split(',')]
    except ValueError:
        found = [-1]
    if not least <= min(found) <= max(found) <= most:
        raise argparse.ArgumentTypeError(
            'must be numbers of bytes, or numbers with KB or MB, from'
            f' {least} up to {most >> 20}MB, not {text!r}')
    return list(dict.fromkeys(found))


def _custom(text, contestants):
    name, _, path = text.partition('=')
    if name in contestants:
        raise argparse.ArgumentTypeError(
            f'{name!r} is taken; give your storage another name')
    try:
        return custom.read(name, path)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _latencies(text):
    try:
        latencies = [
            durability.duration(part, 'a time') for part in text.split(',')]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if max(latencies) > LONGEST_LATENCY:
        raise argparse.ArgumentTypeError(f'must be at most 1s, not {text!r}')
    return latencies


def directory(path):
    if not os.path.isdir(path):
        raise argparse.ArgumentTypeError(f'{path!r} is no directory')
    if not os.access(path, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f'{path!r} cannot be written to')
    return path


def _pictures(path):
    if importlib.util.find_spec('matplotlib') is None:
        raise argparse.ArgumentTypeError(
            'needs matplotlib, which is not installed:'
            ' pip install "fsyncstorage[plots]"')
    # It need not be there yet.
    directory(path if os.path.exists(path)
              else os.path.dirname(path) or os.curdir)
    return path


def new_file(path):
    if os.path.isdir(path):
        raise argparse.ArgumentTypeError(f'{path!r} is a directory')
    if os.path.islink(path) or os.path.exists(path) and (
            not os.path.isfile(path)):
        raise argparse.ArgumentTypeError(f'{path!r} is no plain file')
    directory(os.path.dirname(path) or os.curdir)
    return path
