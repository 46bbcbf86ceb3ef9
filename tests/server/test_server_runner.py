"""`fsync-runzeo` from its options to its first storage, and its pid file."""

import os
import pathlib

from fsyncstorage import FsyncStorage
from fsyncstorage.server.runzeo import Options
from fsyncstorage.server.runzeo import Runner

from ..support import TestCase

CONFIG = """
%import fsyncstorage
<zeo>
  address 127.0.0.1:0
  pid-filename {0}/zeo.pid
</zeo>
<fsyncstorage 1>
  path {0}/Data.fs
</fsyncstorage>
"""


class Storages(TestCase):

    def runner(self):
        config = pathlib.Path(self.path('zeo.conf'))
        config.write_text(CONFIG.format(config.parent))
        self.pid_file = config.parent / 'zeo.pid'
        options = Options()
        options.realize(['-C', str(config)])
        return Runner(options)

    def check_refused(self, runner, words):
        runner.make_pidfile()
        with self.assertLogs('fsyncstorage', 'ERROR') as logged:
            with self.assertRaisesRegex(SystemExit, words):
                runner.open_storages()
        self.assertRegex(logged.output[0], words)
        runner.remove_pidfile()

    def test_the_server_that_has_the_storages_has_the_pid_file(self):
        runner = self.runner()
        runner.make_pidfile()
        self.assertFalse(self.pid_file.exists())
        runner.open_storages()
        self.addCleanup(runner.storages['1'].close)
        self.assertEqual(int(self.pid_file.read_text()), os.getpid())
        runner.remove_pidfile()
        self.assertFalse(self.pid_file.exists())

    def test_one_that_is_refused_leaves_it_alone(self):
        runner = self.runner()
        self.pid_file.write_text('42')
        holder = FsyncStorage(self.path())
        self.addCleanup(holder.close)
        self.check_refused(runner, 'Data.fs is open for writing in process')
        self.assertEqual(self.pid_file.read_text(), '42')

    def test_a_file_that_is_no_database(self):
        runner = self.runner()
        pathlib.Path(self.path()).write_text('something else')
        self.check_refused(runner, 'Data.fs')
        self.assertFalse(self.pid_file.exists())
