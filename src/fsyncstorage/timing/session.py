"""What every measuring run does, whatever it measures.

It promises that the scratch directory is gone afterwards, however the run
ended; that an error or Ctrl-C is one line on standard error; and that the JSON
file, if one was asked for, holds what was measured until then.
"""

import contextlib
import os
import signal
import sys
import tempfile

from rich.console import Console

from . import campaign
from . import document as documents
from . import machine
from .progress import CampaignProgress

#: As a shell reports a program that Ctrl-C ended.
INTERRUPTED = 130


def run(options, command, make_races, show):
    """Measure, write the JSON file, show the tables; returns the exit code.

    `make_races` is called with the options and the seconds that one sync
    takes on this disk, `show` with the finished document and a console.
    """
    prefix = f'fsync-time {command}: '
    try:
        with _termination_as_interrupt(), tempfile.TemporaryDirectory(
                prefix='fsync-time-', dir=options.directory) as scratch:
            # A server may run as another user, and has its place in here.
            os.chmod(scratch, 0o711)
            described = machine.describe(scratch)
            races = make_races(options, described['sync_p50_seconds'])
            document = documents.new(
                command, races, options.contestants, options.rounds,
                options.baseline.name, described)
            _measure(document, races, options, scratch)
        show(document, Console())
    except KeyboardInterrupt:
        kept = (
            f'what was measured so far is in {options.json}' if options.json
            else 'nothing is kept')
        print(f'{prefix}interrupted; {kept}', file=sys.stderr)
        return INTERRUPTED
    except (campaign.SampleFailed, OSError) as error:
        print(f'{prefix}{error}', file=sys.stderr)
        return 1
    return 0


def _measure(document, races, options, scratch):
    steps = campaign.schedule(races, options.contestants, options.rounds)
    try:
        with CampaignProgress(steps, options.rounds) as progress:
            for sample in campaign.run(
                    races, steps, scratch, progress):
                document['samples'].append(sample)
        document['complete'] = True
    finally:
        documents.summarise(document)
        if options.json:
            documents.save(document, options.json)


@contextlib.contextmanager
def _termination_as_interrupt():
    """A plain `kill` is answered like Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
