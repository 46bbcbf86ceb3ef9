"""The options that every measuring command has, and how they are read.

A wrong value is refused in one line that says what is allowed.
"""

import argparse
import os

from fsyncstorage import durability

DEFAULT_ROUNDS = 7
QUICK_ROUNDS = 3

#: More than any disk that is worth a measurement takes.
LONGEST_LATENCY = 1.0


class OneLineParser(argparse.ArgumentParser):
    """Without the usage, which is longer than the error that it hides."""

    def error(self, message):
        self.exit(2, f'{self.prog}: {message} (--help explains)\n')


def add_common(parser, contestants):
    """What to measure, how often, and where to.

    The first of the contestants is what the others are compared with.
    """

    def contestant(name):
        try:
            return contestants[name]
        except KeyError:
            raise argparse.ArgumentTypeError(
                f'there is no {name!r}; allowed are {", ".join(contestants)}'
            ) from None

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
        '--quick', action='store_true',
        help='a rough answer in a minute or two: short samples and'
             f' {QUICK_ROUNDS} rounds')
    parser.add_argument(
        '--baseline', type=contestant, metavar='CONTESTANT',
        help='what the others are compared with (default:'
             f' {next(iter(contestants))}, or the first that takes part)')
    parser.add_argument(
        '--directory', default=os.curdir, type=_directory, metavar='DIR',
        help='measure the disk that this is on (default: the current'
             ' directory); the scratch directory that is made in it is always'
             ' removed')
    parser.add_argument(
        '--json', type=_new_file, metavar='FILE',
        help='write all samples and results to this file; when the run is'
             ' interrupted, what there is by then')


def complete(parser, options):
    """Fill in what depends on other options."""
    # In the order given, each once.
    options.contestants = list(dict.fromkeys(
        options.contestants or options.all_contestants))
    options.sync_latency = list(dict.fromkeys(options.sync_latency or [0.0]))
    if options.rounds is None:
        options.rounds = QUICK_ROUNDS if options.quick else DEFAULT_ROUNDS
    if options.baseline is None:
        default = options.all_contestants[0]
        options.baseline = (
            default if default in options.contestants
            else options.contestants[0])
    elif options.baseline not in options.contestants:
        parser.error(
            f'the baseline {options.baseline.name} does not take part;'
            ' name it among the contestants')


def contestants_help(contestants):
    width = max(map(len, contestants))
    return 'contestants:\n' + '\n'.join(
        f'  {name:{width}}  {contestant.summary}'
        for name, contestant in contestants.items())


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


def _latencies(text):
    try:
        latencies = [
            durability.duration(part, 'a time') for part in text.split(',')]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if max(latencies) > LONGEST_LATENCY:
        raise argparse.ArgumentTypeError(f'must be at most 1s, not {text!r}')
    return latencies


def _directory(path):
    if not os.path.isdir(path):
        raise argparse.ArgumentTypeError(f'{path!r} is no directory')
    if not os.access(path, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f'{path!r} cannot be written to')
    return path


def _new_file(path):
    if os.path.isdir(path):
        raise argparse.ArgumentTypeError(f'{path!r} is a directory')
    _directory(os.path.dirname(path) or os.curdir)
    return path
