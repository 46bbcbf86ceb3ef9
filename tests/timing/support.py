"""What the tests of the timing driver share: a disk, a command, documents."""

import importlib
import io
import os
import tempfile
import unittest

from rich.console import Console

from fsyncstorage.timing import commits
from fsyncstorage.timing import main
from fsyncstorage.timing import zeo
from fsyncstorage.timing.results import document as documents
from fsyncstorage.timing.results import tables
from fsyncstorage.timing.running import supervisor

from ..support import run_command

# A sample is forked: it has these already.
for _module in 'ZEO.runzeo', 'fsyncstorage.server.runzeo':
    importlib.import_module(_module)

#: Of a ZEO site.
SETTINGS = {'loop': 'asyncio', 'sync_latency': 0.0, 'socket': False}

MACHINE = {
    'cpus': 2, 'cpu_model': 'any', 'system': 'Linux', 'architecture': 'any',
    'python': 'CPython', 'packages': {}, 'file_system': 'ext4',
    'load_average': 0.0, 'sync_p50_seconds': 0.001}


class Scratch(unittest.TestCase):

    def setUp(self):
        self.scratch = self.enterContext(tempfile.TemporaryDirectory())

    def enterContext(self, context):  # new in Python 3.11
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def sample(self, contestant, measure, **settings):
        """Its figures; each in a directory of its own."""
        with tempfile.TemporaryDirectory(dir=self.scratch) as directory:
            return supervisor.run(lambda: measure(
                contestant, directory, **{**SETTINGS, **settings}))


class Command(Scratch):
    """What `fsync-time` does with a command line, in the scratch directory."""

    def setUp(self):
        super().setUp()
        self.json = os.path.join(
            self.enterContext(tempfile.TemporaryDirectory()), 'result.json')

    def run_main(self, command, *arguments):
        """Exit code, standard output, standard error."""
        where = [] if command == 'disk' else ['--directory']
        return run_command(
            main.main, command, *where, self.scratch, *arguments)

    def document(self, *arguments):
        """A run that succeeds: its document, and what it shows."""
        code, out, err = self.run_main(*arguments, '--json', self.json)
        self.assertEqual((code, err), (0, ''))
        self.assertEqual(os.listdir(self.scratch), [])
        document = documents.load(self.json)
        self.assertTrue(document['complete'])
        return document, ' '.join(out.split())

    def assertOneLine(self, expected_code, expected, *arguments):
        """A run that fails: what it says."""
        code, out, err = self.run_main(*arguments)
        self.assertEqual((code, out), (expected_code, ''))
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn(expected, err)
        self.assertEqual(os.listdir(self.scratch), [])


class Named:
    """Stands for a contestant in a document."""

    def __init__(self, name):
        self.name, self.summary = name, 'takes part'


def document_of(races, samples, names=('filestorage', 'fsync:none'), rounds=2,
                command='commits'):
    """A document with samples (race, contestant, round, figures)."""
    made = documents.new(
        command, races, map(Named, names), rounds, names[0], dict(MACHINE))
    made['samples'] = [
        dict(zip(('race', 'contestant', 'round', 'figures'), sample))
        for sample in samples]
    return made


def of_commits(*figures, rounds=None, **settings):
    """A document of one race; the figures are pairs, one for each round."""
    race = commits.race(**{'threads': 8, 'seconds': 1, 'sync_latency': 0.005,
                           'shared': False, **settings})
    return document_of([race], [
        (0, name, number, {'txn_per_second': one} if isinstance(
            one, (int, float)) else one)
        for number, pair in enumerate(figures, 1)
        for name, one in zip(('filestorage', 'fsync:none'), pair)],
        rounds=rounds or len(figures))


def of_races(*races, names=('zeo', 'fsync-client')):
    """A document with all compared figures, of two rounds."""
    return document_of(races, [
        (number, name, round_number, {
            figure: (number + 1.0) * round_number for figure in race.compared})
        for number, race in enumerate(races) for name in names
        for round_number in (1, 2)], names=names, command='zeo')


def reads(clients, access='get'):
    return zeo.read_race(
        clients=clients, objects=4, access=access, **SETTINGS)


def shown(document, show=tables.show):
    console = Console(file=io.StringIO(), width=80)
    show(document, console)
    return console.file.getvalue()
