"""A process whose parent has just ended."""

import os
import subprocess
import sys
import unittest
from unittest import mock

from fsyncstorage.processes import starting
from fsyncstorage.processes.parent import ParentProcess


class Ended(Exception):
    """In the place of the process."""


class Reports(unittest.TestCase):

    def test_the_parent_reads_no_more(self):
        """It may still be our parent: its children are not yet another's."""
        reading, writing = os.pipe()
        os.close(reading)
        parent = ParentProcess.__new__(ParentProcess)
        parent._pid = os.getppid()
        parent._reports = os.fdopen(writing, 'w')
        with mock.patch.object(os, '_exit', side_effect=Ended):
            with self.assertRaises(Ended):
                parent.report({'ready': 1})
        with self.assertRaises(BrokenPipeError):
            parent._reports.close()


class Begun(unittest.TestCase):

    def test_the_parent_has_sent_nothing(self):
        """The process ends, and says nothing to the parent's terminal."""
        program = starting._PROGRAM.format(
            package='fsyncstorage.pack', module='process')
        ended = subprocess.run(
            [sys.executable, '-I', '-c', program, str(os.getpid())],
            stdin=subprocess.DEVNULL, capture_output=True)
        self.assertEqual(
            (ended.returncode, ended.stdout, ended.stderr), (1, b'', b''))
