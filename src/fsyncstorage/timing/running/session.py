"""What every measuring run does.

It promises that the scratch directory is removed, also when the run fails or
is interrupted; that an error or Ctrl-C is one line on standard error; and that
the JSON file, if one was asked for, holds what was measured until then.
"""

import contextlib
import os
import sys

from rich.console import Console

from ..results import document as documents
from . import campaign
from . import machine
from . import supervisor
from .progress import CampaignProgress

#: The exit code in a shell of a program that Ctrl-C ended.
INTERRUPTED = 130
#: The exit code for a wrong command line, too.
NOTHING_TO_MEASURE = 2


@supervisor.one_interrupt()
def run(options, command, races, show, added=lambda options: (),
        around=contextlib.nullcontext()):
    """Measure, write the JSON file, show the tables; returns the exit code.

    `show` is called with the finished document and a console.  `added` is
    called with the options; it returns sentences on delays that are added
    elsewhere than to syncs.  The scratch directory exists inside of the
    context manager `around`.
    """
    prefix = f'fsync-time {command}: '
    document = None
    steps = campaign.schedule(races, options.contestants, options.rounds)
    if not steps:
        workloads = dict.fromkeys(race.workload for race in races)
        print(f'{prefix}none of these contestants takes part in'
              f' {", ".join(workloads)} (--help explains)', file=sys.stderr)
        return NOTHING_TO_MEASURE
    try:
        # A server may run in another directory than this process.
        home = os.path.abspath(options.directory)
        with around, supervisor.held() as before, \
                campaign.directory(home) as scratch, supervisor.let(before):
            also_added = added(options)
            document = documents.new(
                command, races, options.contestants, options.rounds,
                options.contestants[0].name, machine.describe(scratch))
            document['added'] = ' '.join([document['added'], *also_added])
            _measure(document, races, steps, scratch, options.json)
        show(document, Console())
    except KeyboardInterrupt:
        kept = (
            f'what was measured so far is in {options.json}'
            if options.json and document else 'nothing is kept')
        print(f'{prefix}interrupted; {kept}', file=sys.stderr)
        return INTERRUPTED
    except (supervisor.Failed, OSError) as error:
        print(f'{prefix}{error}', file=sys.stderr)
        return 1
    return 0


def _measure(document, races, steps, scratch, json):
    try:
        with CampaignProgress(steps, document['rounds']) as progress:
            for sample in campaign.run(races, scratch, progress):
                document['samples'].append(sample)
        document['complete'] = True
    finally:
        with supervisor.held():
            documents.summarise(document)
            if json:
                documents.save(document, json)
