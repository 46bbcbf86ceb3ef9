"""Records a workload, cuts the power, and judges what is left.

A cut is worth making where the next event takes something away from what a
power cut could leave (a sync, or the end), or lets a transaction be kept, and
where something was promised just now: what other cuts leave, these leave, too.

The cuts give images in turn, so that a small number is spread over all of
them.  An image is judged once for each set of obligations.
"""

import contextlib
import itertools
import logging
import os
import random
import shutil
import typing
import warnings

from ...memory import scratch_directory
from . import events
from . import images
from . import powercut
from .ledger import Ledger
from .ledger import Standing
from .site import Site
from .tearing import ALL_MODELS
from .tearing import MODELS

# One image in so many is opened a second time, and by stock FileStorage.
THOROUGH = 5
# A cut that gives so many known images in a row gives no new ones.
EXHAUSTED = 30
SEED = 1


@contextlib.contextmanager
def quiet():
    """Without the warnings that are due when a torn file is opened.

    Also: stock FileStorage leaves its files open when it refuses one.
    """
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', ResourceWarning)
            yield
    finally:
        logging.disable(logging.NOTSET)


class Recording(typing.NamedTuple):
    """What a workload left behind."""

    log: list
    start: int      # cuts before it are of no interest
    ledger: Ledger
    blobs: bool


EMPTY = images.Image(frozenset(), frozenset())


def record(workload, make, over=EMPTY, **of_site):
    """Run a workload with a storage that `make` makes.

    It begins in the directory of the image `over`.
    """
    with scratch_directory() as scratch, quiet():
        directory = os.path.join(scratch, 'site')
        over.write(directory)
        with Site(directory, make, blobs=workload.blobs, **of_site) as site:
            workload.prepare(site)
            start = len(site.recorder.log)
            workload.run(site)
            log = site.recorder.log[:]
        check_that_it_explains(site.recorder.log, directory)
    return Recording(log, start, site.ledger, workload.blobs)


def check_that_it_explains(log, directory):
    """Nothing was done to a file past the recorder."""
    disk = powercut.Disk.after_all(log)
    disk.everything_is_written()
    expected = images.Space(disk, MODELS['byte prefix']).image([])
    found = images.Image.read(directory)
    for path, content in found.files ^ expected.files:
        raise AssertionError(
            f'what was done to {path} was not recorded: {content[:99]!r}')


# Cuts

class Cut(typing.NamedTuple):

    position: int       # in the log
    standing: Standing
    disk: powercut.Disk


def cuts(recording, torn_renames=False):
    standing, disk = Standing(), powercut.Disk(torn_renames)
    log = recording.log
    for position, event in enumerate(log):
        if position >= recording.start and _is_worth_it(log, position):
            yield Cut(position, standing.copy(), disk.copy())
        standing.after(event)
        disk.after(position, event)
    yield Cut(len(log), standing, disk)


def _is_worth_it(log, position):
    return (isinstance(log[position], (
                events.Synced, events.SyncFailed, events.SyncedDirectory,
                events.Finishing, events.Revoked, events.BlobsGone,
                events.Sent, events.Landed))
            or isinstance(log[position - 1], (
                events.Acknowledged, events.PackDone)))


# Images

class Case(typing.NamedTuple):
    """An image, and what was promised about it."""

    image: images.Image
    standing: Standing
    words: str  # to find it again


def cases(recording, model, number):
    """At most that many.  The model is one of `tearing.ALL_MODELS`."""
    queue = [_cases_of(cut, model, number) for cut in _spread(number, list(
        cuts(recording, ALL_MODELS[model].torn_renames)))]
    known, found = set(), 0
    while queue:
        for source in queue[:]:
            case = _new_case(source, known)
            if case is None:
                queue.remove(source)
                continue
            yield case
            found += 1
            if found == number:
                return


def _spread(number, items):
    """At most that many of them, from all over."""
    number = min(number, len(items))
    return [items[place * len(items) // number] for place in range(number)]


def _cases_of(cut, model, number):
    space = images.Space(cut.disk, ALL_MODELS[model])
    source = random.Random(f'{SEED} {model} {cut.position}')
    for choice in images.choices(space.options, number, source):
        yield Case(space.image(choice), cut.standing,
                   f'cut at {cut.position}, {model}, choice {choice}')


def _new_case(source, known):
    for case in itertools.islice(source, EXHAUSTED):
        key = hash((case.image, case.standing.obligations()))
        if key not in known:
            known.add(key)
            return case


# Verdicts

def trial(recording, judge, images, models=MODELS):
    """(model, case, problems) of about so many images, over these models."""
    left = images
    for shares, model in zip(range(len(models), 0, -1), reversed(models)):
        # The coarsest first: what it cannot give, the finer ones do.
        for case, problems in verdicts(
                judge, cases(recording, model, -(-left // shares))):
            yield model, case, problems
            left -= 1


def wrong(trial):
    """How many images a trial had, and what was wrong: kind -> words."""
    number, found = 0, {}
    for _, case, problems in trial:
        number += 1
        for problem in problems:
            found.setdefault(problem.kind, f'{problem.words} ({case.words})')
    return number, found


def verdicts(judge, cases):
    """(case, problems) for each."""
    with scratch_directory() as scratch, quiet():
        for number, case in enumerate(cases):
            directory = os.path.join(scratch, str(number))
            case.image.write(directory)
            yield case, judge.verdict(
                directory, case.standing, thorough=number % THOROUGH == 0)
            shutil.rmtree(directory)
