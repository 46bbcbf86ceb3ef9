"""The run of faults at random (`hour`): two minutes of it."""

import subprocess
import sys
import unittest

from .hour.__main__ import why_not
from .hour.program import ROOT


class Short(unittest.TestCase):

    level = 3

    def test_run(self):
        why = why_not()
        if why is not None:
            self.skipTest(why)
        ended = subprocess.run(
            [sys.executable, '-m', 'tests.quorum.hour', '120'], cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=1200)
        self.assertEqual(ended.returncode, 0, ended.stdout)
