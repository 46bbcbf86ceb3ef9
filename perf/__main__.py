"""The command line of the campaigns: `python -m perf`, in a checkout.

Exit codes: 0 all was measured and all claims hold, 1 a claim does not hold, a
measurement failed, 2 the command line is wrong, or nothing
can be measured here, 130 interrupted.
"""

import argparse
import importlib
import pathlib
import sys

from fsyncstorage.check.terminal import CommandParser
from fsyncstorage.timing import arguments
from fsyncstorage.timing import report

from . import campaign

RESULTS = pathlib.Path(__file__).with_name('results')

MODULES = 'fsync_2004', 'zeo', 'blobs_2004', 'pack', 'plone', 'quorum'

CAMPAIGNS = {
    each.name: each for name in MODULES
    for each in importlib.import_module(f'perf.{name}').CAMPAIGNS}


def main(argv=None):
    options = parser().parse_args(argv)
    try:
        return options.run(options)
    except OSError as error:
        print(f'perf: {error}', file=sys.stderr)
        return 1


def parser():
    made = CommandParser(
        prog='perf', description='Measure with fixed parameters, and record.',
        epilog='campaigns:\n' + '\n'.join(
            f'  {name:13} {each.about}' for name, each in CAMPAIGNS.items()))
    commands = made.add_subparsers(metavar='COMMAND', required=True)
    recording = commands.add_parser(
        'record', help='measure a campaign, and record the result')
    recording.add_argument('campaign', type=_campaign, metavar='NAME')
    recording.add_argument(
        '--directory', default='.', type=arguments.directory, metavar='DIR',
        help='measure the disk that this is on (default: the current one)')
    recording.add_argument(
        '--rounds', type=arguments.positive, metavar='N',
        help='how often each is measured')
    recording.add_argument(
        '--quick', action='store_true',
        help='little work, to try the campaign; nothing is recorded')
    recording.set_defaults(run=_record)
    drawing = commands.add_parser(
        'draw', help='make texts, pictures and a page of HTML of what was'
        ' recorded, again')
    drawing.add_argument(
        'campaigns', nargs='*', type=_campaign, metavar='NAME',
        help='(default: all that were recorded)')
    drawing.set_defaults(run=_draw)
    for each in recording, drawing:
        each.add_argument(
            '--results', default=RESULTS, type=pathlib.Path, metavar='DIR',
            help='where the results are (default: perf/results)')
    return made


def _campaign(name):
    if name not in CAMPAIGNS:
        raise argparse.ArgumentTypeError(
            f'there is no {name!r}; allowed are {", ".join(CAMPAIGNS)}')
    return CAMPAIGNS[name]


def _record(options):
    options.results.mkdir(parents=True, exist_ok=True)
    return campaign.record(options.campaign, options)


def _draw(options):
    for each in options.campaigns or [
            one for one in CAMPAIGNS.values()
            if (options.results / f'{one.name}.json').exists()]:
        campaign.draw(each, options.results)
    return report.write(options.results, _show)


def _show(name, document, console):
    if name in CAMPAIGNS:
        CAMPAIGNS[name].show_all(document, console)
    else:
        report.show(name, document, console)


if __name__ == '__main__':
    sys.exit(main())
