"""The scratch directory of a page: its files, its commands, what goes on.

What a page tells to type is typed here as a user would: by a shell, in a
directory of its own, with the commands of the packages on the PATH.  When it
is closed, nothing is left that was started.

A number from 8000 to 8999 is a port; another one, that is free, takes its
place in all that is written and run, and back in what is printed.
"""

import contextlib
import doctest
import io
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points

import ZConfig
import ZEO
import ZODB.config

from perf.ports import free_port

from ..quorum import etcdcluster
from ..support import PATIENCE
from ..support import until

ROOT = pathlib.Path(__file__).parents[2]

_COMMAND = re.compile(r'^\$ (.*(?:(?<=\\)\n.*)*)\n', re.MULTILINE)
_SECTION = re.compile(r'^\s*<(\w+)', re.MULTILINE)
_PORT = re.compile(r'\b8\d{3}\b')
_SCRIPT = re.compile(r'^([\w-]+) = "([\w.]+):(\w+)"$', re.MULTILINE)

# As much of a zope.conf as concerns databases.
_ZOPE = """
<schema>
  <import package="ZODB"/>
  <sectiontype name="zodb_db" extends="zodb">
    <key name="mount-point"/>
  </sectiontype>
  <multisection type="zodb_db" name="*" attribute="databases"/>
  <multikey name="+" attribute="others" required="no"/>
</schema>
"""


class Wrong(Exception):
    """What the page says is not so."""


class Scratch:
    def __init__(self):
        self._top = tempfile.mkdtemp(prefix='fsyncstorage-')
        self._home = os.path.join(self._top, 'home')
        self._bin = os.path.join(self._top, 'bin')
        os.mkdir(self._home)
        os.mkdir(self._bin)
        self._ports = {}
        self._started = []
        for name, module, function in _scripts():
            self._make_script(name, module, function)

    def _make_script(self, name, module, function):
        path = os.path.join(self._bin, name)
        with open(path, 'w') as script:
            script.write(f'#!{sys.executable}\nimport sys\n'
                         f'from {module} import {function}\n'
                         f'sys.exit({function}())\n')
        os.chmod(path, 0o755)

    def close(self):
        for process, output in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                output.close()
        shutil.rmtree(self._top)

    # Files and programs

    def write(self, name, text):
        path = os.path.join(self._home, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as file:
            file.write(self._with_our_ports(text) + '\n')

    def program(self, text):
        done = self._run([sys.executable, '-'],
                         input=self._with_our_ports(text))
        if done.returncode:
            raise Wrong(done.stdout)

    # Commands

    def session(self, text):
        commands = list(_COMMAND.finditer(text))
        if not commands or commands[0].start():
            raise Wrong('a console without a command at its begin')
        ends = [each.start() for each in commands[1:]] + [len(text)]
        for command, end in zip(commands, ends):
            self._command(command[1], text[command.end():end])

    def _command(self, command, expected):
        ours = self._with_our_ports(command)
        if command.endswith(' &'):
            self._start(ours[:-2], expected)
            return
        going_on = self._going_on()
        done = self._run(ours, shell=True)
        printed = self._with_their_ports(done.stdout)
        if done.returncode:
            raise Wrong(f'$ {command}\nended with status {done.returncode}:\n'
                        f'{printed}')
        _check(command, expected, printed)
        if command.startswith('kill '):
            until(lambda: self._going_on() < going_on,
                  'the end of what was killed')

    def _run(self, command, **options):
        return subprocess.run(
            command, cwd=self._home, env=self._environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=PATIENCE, **options)

    def _start(self, command, expected):
        """What goes on; it has printed what is expected."""
        output = tempfile.TemporaryFile('w+')
        process = subprocess.Popen(
            'exec ' + command, shell=True, cwd=self._home, text=True,
            env=self._environment(), stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True)
        self._started.append((process, output))

        def printed():
            output.seek(0)
            return self._with_their_ports(output.read())

        until(lambda: process.poll() is not None
              or _fits(expected + '...', printed()),
              f'what {command!r} should print:\n{expected}')
        if process.poll() is not None:
            raise Wrong(f'$ {command}\nended:\n{printed()}')

    def _going_on(self):
        return sum(process.poll() is None for process, output in self._started)

    def _environment(self):
        return dict(
            os.environ, HOME=self._home, COLUMNS='79', TERM='dumb',
            PATH=os.pathsep.join([
                self._bin, os.path.dirname(sys.executable),
                str(etcdcluster.BUILT.parent), os.environ['PATH']]),
            PYTHONPATH=os.pathsep.join(sys.path))

    # Ports

    def _with_our_ports(self, text):
        return _PORT.sub(lambda match: self._ports.setdefault(
            match[0], str(free_port())), text)

    def _with_their_ports(self, text):
        for theirs, ours in self._ports.items():
            text = text.replace(ours, theirs)
        return text

    # Configurations

    def read_configuration(self, text):
        with self._somewhere():
            try:
                ZConfig.loadConfigFile(_schema(text), io.StringIO(text))
            except ZConfig.ConfigurationError as error:
                raise Wrong(str(error)) from None

    @contextlib.contextmanager
    def _somewhere(self):
        """A current directory with those that a configuration may name."""
        here = os.getcwd()
        with tempfile.TemporaryDirectory(dir=self._top) as there:
            for name in 'var', 'etc', 'a', 'b':
                os.mkdir(os.path.join(there, name))
            os.chdir(there)
            try:
                yield
            finally:
                os.chdir(here)


def _scripts():
    """Name, module and function of each command that packages install.

    Ours from `pyproject.toml`: the tests may be run without an installation.
    """
    for each in entry_points(group='console_scripts'):
        yield each.name, each.module, each.attr
    yield from _SCRIPT.findall((ROOT / 'pyproject.toml').read_text())


def has_sections(text):
    return _SECTION.search(text) is not None


def _schema(text):
    sections = set(_SECTION.findall(text))
    if 'zodb_db' in sections:
        return ZConfig.loadSchemaFile(io.StringIO(_ZOPE))
    if sections & {'zeo', 'runner', 'eventlog'}:
        # fsync-runzeo has the same.
        return ZConfig.loadSchema(
            os.path.join(os.path.dirname(ZEO.__file__), 'schema.xml'))
    if 'zodb' in sections:
        return ZODB.config.getDbSchema()
    return ZODB.config.getStorageSchema()


def _fits(expected, printed):
    return doctest.OutputChecker().check_output(
        expected, printed, doctest.ELLIPSIS)


def _check(command, expected, printed):
    if not _fits(expected, printed):
        raise Wrong(f'$ {command}\nshould print\n{expected}\nand printed\n'
                    f'{printed}')
