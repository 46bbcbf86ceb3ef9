"""Where a pack has no process of its own, it is done within the storage's."""

import os
import stat
import sys
import time
from unittest import mock

from ZODB.serialize import referencesf

from fsyncstorage.processes import starting

from .processes import ProcessTestCase


class Within(ProcessTestCase):
    """Where there is no process, all is done by the storage's own."""

    level = 2

    def check_within(self, storage):
        before = len(self.content())
        with self.assertLogs('fsyncstorage.pack', 'INFO') as logs:
            self.pack(storage)
        self.assertIn('packing within this process', '\n'.join(logs.output))
        self.assertLess(len(self.content()), before)
        self.assertEqual(len(self.blobs()), 1)
        self.check_nothing_is_left()
        return logs.records

    def test_where_the_operator_wants_that(self):
        self.check_within(self.packable(pack_process=False))
        self.assertEqual(self.started, [])

    def test_where_a_wrapper_reads_records(self):
        storage = self.packable()
        storage.pack(time.time() + 1, lambda data: referencesf(data))
        self.assertEqual(self.started, [])
        self.assertEqual(len(self.blobs()), 1)

    def test_where_python_is_a_part_of_another_program(self):
        storage = self.packable()
        for executable in ('/usr/bin/uwsgi', '/usr/bin/uwsgi_python3',
                           '/usr/bin/python3-server', '', None):
            with self.subTest(executable), mock.patch.object(
                    sys, 'executable', executable):
                self.fill(storage)
                self.check_within(storage)
        with mock.patch.object(sys, 'frozen', True, create=True):
            self.fill(storage)
            self.check_within(storage)
        self.assertEqual(self.started, [])

    def check_warning(self, storage, why):
        self.fill(storage)
        [warning] = [record for record in self.check_within(storage)
                     if record.levelname == 'WARNING']
        self.assertIn(why, warning.getMessage())

    def test_where_the_process_says_something_else_first(self):
        storage = self.packable()
        for said in 'hello', '{}', '[1', r'\377':
            with self.subTest(said), self.python_that_says(
                    f"printf '{said}\\n'; exec {sys.executable} \"$@\""):
                self.check_warning(storage, 'it said')

    def test_where_other_code_is_on_the_disk(self):
        storage = self.packable()
        with mock.patch.object(starting, 'VERSION', 'an old one'):
            self.check_warning(storage, 'restart it')
        self.assertEqual(len(self.started), 1)

    def test_one_that_is_not_ready_gets_no_job(self):
        """It could do it in its own way, and beside its parent."""
        storage = self.packable()
        with self.python_that_says(
                f'read modules; read job && echo >{self.path("job")}'), \
                mock.patch.object(starting, 'READY_WITHIN', .1):
            self.check_warning(storage, 'it said')
        self.assertFalse(os.path.exists(self.path('job')))

    def test_where_the_standard_error_is_closed(self):
        """Another file may have its number: the data file, too."""
        storage = self.packable()
        other = self.path('other')
        saved = os.dup(2)
        self.addCleanup(os.close, saved)
        with mock.patch.object(sys, '__stderr__', None), \
                self.python_that_says(
                    f'echo oops >&2; exec {sys.executable} "$@"'):
            with open(other, 'wb') as file:
                os.dup2(file.fileno(), 2)
            try:
                self.pack(storage)
            finally:
                os.dup2(saved, 2)
        self.assertEqual(len(self.started), 1)
        self.assertEqual(self.content('other'), b'')

    def test_where_the_process_does_not_start(self):
        storage = self.packable()
        path = self.path('python')
        with open(path, 'w') as file:
            file.write('#!/bin/sh\nexit 3\n')
        for mode, why in (0, 'Permission'), (stat.S_IRWXU, 'exit code 3'):
            os.chmod(path, mode)
            with self.subTest(why), mock.patch.object(
                    sys, 'executable', path):
                self.fill(storage)
                records = self.check_within(storage)
                [warning] = [record for record in records
                             if record.levelname == 'WARNING']
                self.assertIn(why, warning.getMessage())

    def test_it_runs_nothing_of_the_environment(self):
        evil = self.path('evil')
        os.mkdir(evil)
        for name in 'sitecustomize.py', 'usercustomize.py', 'json.py':
            with open(os.path.join(evil, name), 'w') as file:
                file.write(f'open({self.path("was-run")!r}, "w")\n')
        storage = self.packable()
        home = os.getcwd()
        os.chdir(evil)
        self.addCleanup(os.chdir, home)
        with mock.patch.dict(os.environ, {'PYTHONPATH': evil}):
            self.pack(storage)
        self.assertEqual(len(self.started), 1)
        self.assertFalse(os.path.exists(self.path('was-run')))
