"""Examples for the tools that make a site: what they name is there, and what
can be run without these tools runs."""

import functools
import os
import pathlib
import re
import subprocess
import unittest

from ..commands import Commands
from ..docs.scratch import Scratch
from ..metrics.asking import EXAMPLES
from ..support import PATIENCE

try:
    import yaml
except ImportError:
    yaml = None

ROOT = EXAMPLES.parent
TOOLS = EXAMPLES / 'tools'
ANSIBLE = EXAMPLES / 'ansible' / 'fsyncstorage.yml'
UNIT = EXAMPLES / 'systemd' / 'fsyncstorage.service'
QUORUM = EXAMPLES / 'kubernetes' / 'quorum.yaml'

#: What stands for the command in a test: it says what it was called with, and
#: makes what the real one makes.
BOOTSTRAP = """#!/bin/sh
echo "$@" >>{directory}/called
touch {directory}/data/Data.fs.quorum
"""


@functools.cache
def loaded(path):
    return list(yaml.safe_load_all(path.read_text()))


@unittest.skipUnless(yaml, 'PyYAML is not installed')
class Fit(unittest.TestCase):

    level = 2

    def test_each_is_yaml(self):
        paths = [*EXAMPLES.rglob('*.yaml'), *EXAMPLES.rglob('*.yml'),
                 *ROOT.glob('.github/workflows/*.yml')]
        self.assertGreater(len(paths), 6)
        for path in paths:
            with self.subTest(path.relative_to(ROOT)):
                self.assertTrue(loaded(path))

    def test_the_entry_point(self):
        settings = loaded(TOOLS / 'instance.yaml')[0]['default_context']
        package, name = settings['wsgi_app_entrypoint'].removeprefix(
            'egg:').split('#')
        text = (ROOT / 'pyproject.toml').read_text()
        self.assertIn(f'name = "{package}"\n', text)
        self.assertRegex(
            text, rf'\[project.entry-points."paste.app_factory"\]\n{name} = ')

    def test_the_stack_has_the_health_check_of_the_container(self):
        of_stack, of_compose = (
            loaded(path)[0]['services']['db']['healthcheck'] for path in (
                TOOLS / 'stack.yml', EXAMPLES / 'container' / 'compose.yaml'))
        self.assertEqual(of_stack, of_compose)

    def test_the_playbook_copies_what_is_there(self):
        (play,), = loaded(ANSIBLE)
        copied = {
            task['ansible.builtin.copy']['src']:
                task['ansible.builtin.copy']['dest']
            for task in play['tasks'] if 'ansible.builtin.copy' in task
            and '{{' not in task['ansible.builtin.copy']['src']}
        self.assertEqual(len(copied), 2)
        for name in copied:
            self.assertTrue((ANSIBLE.parent / name).exists(), name)
        unit = UNIT.read_text()
        self.assertIn(f"-C {copied['../zeo/zeo.conf']}\n", unit)
        for task in play['tasks']:
            if user := task.get('ansible.builtin.user'):
                self.assertIn(f"\nUser={user['name']}\n", unit)
            if pip := task.get('ansible.builtin.pip'):
                self.assertIn(f"ExecStart={pip['virtualenv']}/bin/", unit)


@unittest.skipUnless(yaml, 'PyYAML is not installed')
class QuorumInKubernetes(Commands):

    level = 2

    def setUp(self):
        super().setUp()
        configuration, nodes, _, _ = loaded(QUORUM)
        self.files = configuration['data']
        self.spec = nodes['spec']['template']['spec']

    def test_its_configuration_can_be_read(self):
        scratch = Scratch()
        self.addCleanup(scratch.close)
        scratch.read_configuration(
            self.files['zeo.conf'].replace('/data/', 'var/'))

    def test_its_probes(self):
        container, = self.spec['containers']
        self.assertEqual(
            {name: container[f'{name}Probe']['httpGet']['path']
             for name in ('startup', 'liveness', 'readiness')},
            {'startup': '/startup', 'liveness': '/live',
             'readiness': '/node'})
        ports = {each['name']: each['containerPort']
                 for each in container['ports']}
        for port in ports.values():
            self.assertIn(f'address 0.0.0.0:{port}\n', self.files['zeo.conf'])

    def begin(self, marker):
        """What the command was called with, once the marker is there."""
        for name in 'bin', 'data':
            os.mkdir(self.path(name))
        command = pathlib.Path(self.path('bin/fsync-quorum'))
        command.write_text(BOOTSTRAP.format(directory=self.directory))
        command.chmod(0o755)
        for path in marker, 'from':
            os.mkdir(self.path(f'data/{path}'))
        script = re.sub('/data/', self.path('data/'), self.files['begin.sh'])
        subprocess.run(
            ['sh', '-c', script], check=True, timeout=PATIENCE, env={
                'PATH': f"{self.path('bin')}:{os.environ['PATH']}"})
        return pathlib.Path(self.path('called')).read_text().split()

    def test_the_first_node_begins_the_log(self):
        called = self.begin('first')
        self.assertEqual(called[0], 'bootstrap')
        self.assertNotIn('--from', called)

    def test_another_node_begins_with_the_copy(self):
        called = self.begin('copied')
        self.assertEqual(called[-2:], ['--from', self.path('data/from')])
        self.assertEqual(os.listdir(self.path('data')), ['Data.fs.quorum'])
