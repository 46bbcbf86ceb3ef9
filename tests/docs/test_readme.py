"""A backup, and the proof that it restores, take one command each, as the
README writes them.
"""

import unittest

from .documents import ROOT
from .documents import blocks
from .scratch import Scratch

#: What the README leaves to the reader.
A_COMMIT = """
import contextlib

import ZEO

with contextlib.closing(ZEO.DB(('127.0.0.1', 8100))) as db:
    with db.transaction() as connection:
        connection.root()['said'] = 'hello'
"""


class Readme(unittest.TestCase):

    level = 2

    def test_a_backup_and_its_proof(self):
        texts = [block.text for block in blocks(ROOT / 'README.rst')]
        configuration, = (text for text in texts if '<zeo>' in text)
        commands, = (text for text in texts if 'fsync-backup' in text)
        at = commands.index('$ fsync-backup run')
        scratch = Scratch()
        self.addCleanup(scratch.close)
        scratch.write('zeo.conf', configuration)
        scratch.session(commands[:at].replace('pip install .; ', ''))
        scratch.program(A_COMMIT)
        scratch.session(commands[at:] + '\n... are sound\n')
