"""What is in examples/: it works as it stands there.

No service manager and no container engine is needed: what they would run is
run as a plain command, with the paths of a scratch directory.
"""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import unittest
import urllib.request

import transaction
import ZEO
import ZEO.tests
from ZODB.FileStorage.FileStorage import packed_version

from fsyncstorage.server.runzeo import Options
from perf.ports import free_port

from ..commands import SCRIPTS
from ..commands import Commands
from ..commands import answers
from ..docs.scratch import Scratch
from ..metrics import asking
from ..metrics.asking import probe
from ..support import PATIENCE

EXAMPLES = pathlib.Path(__file__).parents[1].with_name('examples')
UNIT = EXAMPLES / 'systemd' / 'fsyncstorage.service'
CONTAINERFILE = EXAMPLES / 'container' / 'Containerfile'
CERTIFICATES = os.path.dirname(ZEO.tests.__file__)

#: Where the unit has the configuration, which is examples/zeo/zeo.conf.
ZEO_CONF = '/etc/fsyncstorage/zeo.conf'


def settings(unit):
    """name -> value, of all sections together."""
    return dict(line.split('=', 1) for line in unit.splitlines()
                if '=' in line and not line.startswith('#'))


def instruction(containerfile, name):
    return re.search(rf'^{name} (.+)$', containerfile, re.MULTILINE)[1]


class Unit(Commands):

    level = 2

    @unittest.skipUnless(
        shutil.which('systemd-analyze'), 'systemd-analyze is not installed')
    def test_systemd_understands_them(self):
        for original in sorted(UNIT.parent.iterdir()):
            text = original.read_text()
            with open(self.path(original.name), 'w') as file:
                file.write(re.sub(r'/opt/fsyncstorage/bin/[\w-]+',
                                  sys.executable, text))
        for name in os.listdir(UNIT.parent):
            found = subprocess.run(
                ['systemd-analyze', 'verify', '--man=no', self.path(name)],
                capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual((found.returncode, found.stderr), (0, ''), name)

    def test_it_is_watched(self):
        said = settings(UNIT.read_text())
        self.assertEqual(
            (said['Type'], said['NotifyAccess'], said['TimeoutStartSec']),
            ('notify', 'main', 'infinity'))
        self.assertGreaterEqual(int(said['WatchdogSec']), 10)

    def test_it_syncs(self):
        """Its filter of system calls takes no sync away."""
        said = settings(UNIT.read_text())
        self.assertEqual(said['SystemCallFilter'], '@system-service')
        if shutil.which('systemd-analyze'):
            calls = subprocess.run(
                ['systemd-analyze', 'syscall-filter', '@system-service',
                 '@sync'],
                capture_output=True, text=True, timeout=PATIENCE).stdout
            for call in '@sync', 'fsync', 'fdatasync':
                self.assertIn(f'    {call}\n', calls)


class ServedCase(Commands):
    """The command of each serves, keeps what is committed, and ends well."""

    def setUp(self):
        super().setUp()
        os.mkdir(self.path('var'))
        with open(self.path('zeo.conf'), 'w') as file:
            file.write((EXAMPLES / 'zeo' / 'zeo.conf').read_text().replace(
                '127.0.0.1:8100', self.path('socket')))

    def check(self, command, file):
        server = self.start(command, lambda: answers(self.path('socket')))
        connection = ZEO.connection(self.path('socket'))
        connection.root.greeting = 'hello'
        transaction.commit()
        connection.close()
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(PATIENCE), 0, self.said())
        self.assertTrue(os.path.getsize(self.path(file)))

    def in_the_container(self, **environment):
        """Its command, with what it copies in a directory of the test."""
        text = CONTAINERFILE.read_text()
        *sources, there = re.search(
            r'^COPY (examples/.+)$', text, re.MULTILINE)[1].split()
        os.makedirs(self.path('etc'))
        for source in sources:
            shutil.copy(EXAMPLES.parent / source, self.path('etc'))
        os.mkdir(self.path('bin'))
        with open(self.path('bin/fsync-runzeo'), 'w') as file:
            file.write('#!/bin/sh\nexec %s "$@"\n' % shlex.join(
                SCRIPTS['fsync-runzeo']))
        os.chmod(self.path('bin/fsync-runzeo'), 0o755)
        self.options['env'].update(
            environment, DATA=self.path('data'),
            PATH=f"{self.path('bin')}:{os.environ['PATH']}")
        return [word.replace(there, self.path('etc/'))
                for word in json.loads(instruction(text, 'ENTRYPOINT'))]

    def write_config_for_this_machine(self):
        with open(self.path('etc/zeo.conf'), 'r+') as file:
            text = file.read().replace('0.0.0.0', '127.0.0.1')
            file.seek(0)
            file.write(text)


class Served(ServedCase):

    level = 2

    def test_unit(self):
        program, *arguments = settings(UNIT.read_text())['ExecStart'].replace(
            ZEO_CONF, 'zeo.conf').split()
        self.check([*SCRIPTS[os.path.basename(program)], *arguments],
                   'var/Data.fs')

    def test_container(self):
        # (Only this machine shall reach it.)
        self.check([*self.in_the_container(), '-a', self.path('socket')],
                   'data/filestorage/Data.fs')

    def test_container_where_an_earlier_image_has_its_data(self):
        """It makes no empty database, and serves that which was moved."""
        command = [*self.in_the_container(), '-a', self.path('socket')]
        script = self.path('etc/start.sh')
        with open(script, 'r+') as file:
            text = file.read()
            self.assertIn('\nEARLIER=/srv/zeo/var\n', text)
            file.seek(0)
            file.write(text.replace('/srv/zeo/var', self.path('var')))
        with open(self.path('var/Data.fs'), 'wb') as file:
            file.write(packed_version)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE,
            env=self.options['env'])
        self.assertEqual((done.returncode, done.stderr.count('\n')), (1, 1))
        self.assertIn(self.path('var'), done.stderr)
        self.assertFalse(os.path.exists(self.path('data')))
        os.makedirs(self.path('data/filestorage'))
        shutil.copy(self.path('var/Data.fs'), self.path('data/filestorage'))
        self.check(command, 'data/filestorage/Data.fs')

    def test_the_variables_of_the_container_are_written_down(self):
        text = CONTAINERFILE.read_text()
        used = re.findall(
            r'\$\((\w+)\)', (CONTAINERFILE.parent / 'zeo.conf').read_text())
        of_tls = re.findall(
            r'\$\((\w+)\)', (CONTAINERFILE.parent / 'tls.conf').read_text())
        by_the_server = 'FSYNC_METRICS', 'FSYNC_BACKUP'
        for name in {*used, *by_the_server, *of_tls} - {'DATA', 'TLS'}:
            self.assertRegex(text, rf'#     .*\b{name}\b')
        for name, value in re.findall(
                r'^export (\w+)="\$\{\w+:-(.*)\}"',
                (CONTAINERFILE.parent / 'start.sh').read_text(),
                re.MULTILINE):
            self.assertIn(name, used)
            if name != 'DATA':
                self.assertRegex(text, rf'#     {name} +{value}\b')

    def test_what_the_container_copies_is_there(self):
        checkout = EXAMPLES.parent
        copied = re.findall(
            r'^COPY (?!--from)(.+) \S+$', CONTAINERFILE.read_text(),
            re.MULTILINE)
        for name in ' '.join(copied).split():
            self.assertTrue((checkout / name).exists(), name)


class Healthy(ServedCase):

    level = 2

    def assert_healthy_once_started(self, **environment):
        port = free_port()
        command = self.in_the_container(ZEO_PORT=str(port), **environment)
        self.write_config_for_this_machine()
        check = [word.replace('/etc/fsyncstorage', self.path('etc'))
                 for word in json.loads(
                     instruction(CONTAINERFILE.read_text(),
                                 'HEALTHCHECK').partition('CMD ')[2])]

        def is_healthy():
            return not subprocess.run(check, **self.options).returncode

        self.assertFalse(is_healthy())
        self.start(command, is_healthy)

    def test_without_tls(self):
        self.assert_healthy_once_started()

    def test_with_tls(self):
        self.assert_healthy_once_started(**{
            variable: os.path.join(CERTIFICATES, f'{name}.pem')
            for variable, name in (
                ('FSYNC_CERTIFICATE', 'server'), ('FSYNC_KEY', 'server_key'),
                ('FSYNC_CLIENTS', 'client'))})


class Plone(unittest.TestCase):

    def test_the_application_is_replaced(self):
        """What the image of Plone has in its ini file, by our entry point
        (test_zope shows what that does)."""
        script, = re.findall(
            r'sed -i (\S+)', CONTAINERFILE.with_suffix('.plone').read_text())
        done = subprocess.run(
            ['sed', script], input='use = egg:Zope#main\n', text=True,
            check=True, stdout=subprocess.PIPE)
        self.assertEqual(done.stdout, 'use = egg:fsyncstorage#zope\n')


class OtherVariables(ServedCase):

    level = 3

    def test_container_by_its_variables(self):
        port, metrics = free_port(), free_port()
        command = self.in_the_container(
            ZEO_PORT=str(port), ZEO_READ_ONLY='', ZEO_PACK_KEEP_OLD='false',
            FSYNC_DURABILITY='per-commit', FSYNC_SCRUB_RATE='off',
            FSYNC_PACK_GC='off', FSYNC_PACK_RATE='20MB',
            FSYNC_METRICS=f'127.0.0.1:{metrics}')
        self.write_config_for_this_machine()
        self.start(command, lambda: answers(('127.0.0.1', port)))
        self.assertEqual(probe(('127.0.0.1', metrics), '/ready')[0], 200)
        figures = asking.metrics(('127.0.0.1', metrics))
        self.assertEqual(figures['fsyncstorage_writing_stopped',], 0)
        self.assertNotIn(('fsyncstorage_scrub_progress_ratio',), figures)


class Run(Commands):
    """What `make run` tells to type does what it says."""

    level = 2

    COMMANDS = [os.path.join(os.path.dirname(sys.executable), name)
                for name in ('fsync-check', 'fsync-time', 'fsync-runzeo')]

    @unittest.skipUnless(
        all(map(os.path.exists, COMMANDS)), 'the commands are not installed')
    def test_what_it_says(self):
        port, page = free_port(), free_port()
        server = self.start(
            [sys.executable, str(EXAMPLES / 'zeo' / 'serve.py'),
             '--port', str(port), '--page', str(page)],
            lambda: answers(('127.0.0.1', port)))
        notice = self.said().partition('\n\n\n')[0]
        address = re.search(r'http://\S+', notice.splitlines()[0])[0]
        self.assertEqual(address, f'http://127.0.0.1:{page}')
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            self.assertIn(b'page.js', answer.read())
        blocks = [textwrap.dedent(each) for each in re.findall(
            r'^    .*\n(?:    .*\n)*', notice, re.MULTILINE)]
        ours, stock, zope, commands = blocks
        self.assertEqual(self.type(ours), '')
        self.assertEqual(self.type(stock), 'hello\n')
        scratch = Scratch()
        self.addCleanup(scratch.close)
        scratch.read_configuration(zope)
        for line in commands.splitlines():
            name = line.split()[0]
            if name.startswith('docs/'):
                self.assertTrue((EXAMPLES.parent / name).exists(), name)
            elif name == 'local-reads':
                self.check_local_reads(line)
            elif not line.startswith(' '):
                self.assertIn(name, self.COMMANDS)
        checked = subprocess.run(
            commands.splitlines()[0].split(), capture_output=True, text=True,
            cwd=self.directory, timeout=PATIENCE)
        self.assertIn('No damage found.', checked.stdout)
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(PATIENCE), 0, self.said())

    def refused(self, *arguments):
        refused = subprocess.run(
            [sys.executable, str(EXAMPLES / 'zeo' / 'serve.py'), *arguments],
            capture_output=True, text=True, cwd=self.directory,
            timeout=PATIENCE)
        self.assertTrue(refused.returncode)
        self.assertEqual(refused.stdout, '')
        return refused.stderr

    def test_the_page_needs_a_port_of_its_own(self):
        port = str(free_port())
        self.assertIn('the page needs another port', self.refused(
            '--port', port, '--page', port))

    def test_a_port_that_is_taken(self):
        """The one that is proposed is a port."""
        for port, proposed in (8100, 8101), (65535, 65534):
            with self.subTest(port), socket.socket() as other:
                other.setsockopt(
                    socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
                with contextlib.suppress(OSError):  # it is taken already
                    other.bind(('127.0.0.1', port))
                    other.listen()
                self.assertIn(f'make run PORT={proposed}\n', self.refused(
                    '--port', str(port)))

    def check_local_reads(self, key):
        """It can be put into the section of the example."""
        text = (EXAMPLES / 'zeo' / 'zeo.conf').read_text()
        self.assertNotIn('local-reads', text)
        changed = self.path('changed.conf')
        with open(changed, 'w') as file:
            file.write(text.replace('var/', self.path('')).replace(
                '<fsyncstorage 1>\n', f'<fsyncstorage 1>\n  {key}\n'))
        options = Options()
        options.realize(['-C', changed])
        storage, = options.storages
        self.assertTrue(storage.config.local_reads)

    def type(self, program):
        done = subprocess.run(
            [sys.executable, '-c', program], capture_output=True, text=True,
            timeout=PATIENCE, env=self.options['env'])
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout
