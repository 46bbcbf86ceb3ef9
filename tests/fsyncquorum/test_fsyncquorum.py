"""`fsync-quorum`: what it says of a quorum, what it changes and refuses."""

import io
import json
import os
import subprocess
import sys
import time
from unittest import mock

from persistent.TimeStamp import TimeStamp

from fsyncstorage.fsyncquorum import changing
from fsyncstorage.fsyncquorum import commandline
from fsyncstorage.fsyncquorum import looking
from fsyncstorage.fsyncquorum import memory
from fsyncstorage.quorum.etcd.engine import EtcdLog
from fsyncstorage.quorum.etcd.section import PREFIX
from fsyncstorage.quorum.etcd.settings import Settings
from fsyncstorage.quorum.etcd.settings import address
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.history.batch import Batch
from fsyncstorage.quorum.history.record import Place
from fsyncstorage.quorum.history.record import Trim
from fsyncstorage.quorum.history.record import node_name
from fsyncstorage.quorum.leading.writer import Writer
from fsyncstorage.quorum.log.interface import Missing
from fsyncstorage.quorum.log.notes import Health
from fsyncstorage.quorum.log.notes import Note
from fsyncstorage.quorum.roles import stepdown

from ..quorum.gateway import GatewaysCase
from ..quorum.samples import SELF
from ..support import Thread
from ..support import run_command
from ..support import until

CONFIG = """
%import fsyncstorage
<zeo>
  address 127.0.0.1:1
</zeo>
<fsyncstorage 1>
  path {path}
  durability quorum
  <quorum>
    node {name}
    log {log}
    etcd {etcd}
  </quorum>
</fsyncstorage>
"""

# As after a plain install, without the extra.
WITHOUT_GRPC = """
import json
import sys
sys.modules['grpc'] = None
from fsyncstorage.fsyncquorum import main
from tests.support import run_command
print(json.dumps([
    run_command(main, *each) for each in json.loads(sys.argv[1])]))
"""

DONE, WARNS, CANNOT_RUN = 0, 1, 2


class Case(GatewaysCase):

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(looking, 'NOTED_WITHIN', 0.0)
        patch.start()
        self.addCleanup(patch.stop)
        self.log = EtcdLog(Settings(
            list(map(address, self.gateways.addresses)), f'{PREFIX}here'))
        self.addCleanup(self.log.close)

    def configuration(self, name='a', log='here'):
        home = self.path(name)
        os.makedirs(home, exist_ok=True)
        path = os.path.join(home, 'zeo.conf')
        with open(path, 'w') as file:
            file.write(CONFIG.format(
                path=self.data(name), name=name, log=log,
                etcd=' '.join(self.gateways.addresses)))
        return path

    def data(self, name='a'):
        return os.path.join(self.path(name), 'Data.fs')

    def run_it(self, command, *arguments, name='a'):
        """Exit status, and what is printed."""
        status, out, err = run_command(
            commandline.main, command, '-C', self.configuration(name),
            *arguments)
        self.assertEqual(bool(err), status == CANNOT_RUN)
        self.assertEqual(err.count('\n'), len(err) > 0, err)
        return status, out + err

    def done(self, command, *arguments, name='a'):
        status, printed = self.run_it(command, *arguments, name=name)
        self.assertEqual(status, DONE, printed)
        return printed

    def refused(self, words, command, *arguments, name='a'):
        status, printed = self.run_it(command, *arguments, name=name)
        self.assertEqual(status, CANNOT_RUN)
        self.assertIn(words, printed)

    def looked(self):
        status, printed = self.run_it('status', '--json')
        found = json.loads(printed)
        self.assertEqual(status, WARNS if found['warnings'] else DONE)
        return found

    def begun(self):
        """A log with a node `a` that leads, and a node `b`."""
        self.done('bootstrap')
        self.writer = Writer(self.log, states.load(self.data()).state)
        self.lead('a')
        self.note('b')

    def lead(self, node):
        self.log.hold(f'{node} process'.encode(), 5.0)
        self.writer.lead(node_name(node))
        while not self.writer.advance():
            pass

    def note(self, node, **health):
        """It runs, and has all of the log."""
        self.log.note(node_name(node), Note(
            SELF, self.writer.state.place, Health(
                time.time(), 0.0, True, '')._replace(**health)).packed())

    def write(self, moment=None, size=100):
        moment = time.time() if moment is None else moment
        tid = TimeStamp(*time.gmtime(moment)[:5], moment % 60).raw()
        begin = self.writer.state.end
        self.writer.write(Batch(
            begin, begin + size,
            lambda position, length: (tid + bytes(size))[
                position - begin:][:length]))
        while not self.writer.advance():
            pass


class Status(Case):

    level = 2

    def test_all_is_well(self):
        self.begun()
        self.write()
        self.note('b')
        printed = self.done('status')
        for words in ('log here: records 1 to 2\n',
                      'epoch     1\n', 'lease     a',
                      'members of etcd: 3 that vote', 'leader',
                      'a                leads',
                      'b                has all of the log',
                      'All is well.'):
            self.assertIn(words, printed)
        self.assertEqual(self.looked()['warnings'], [])

    def test_there_is_no_log(self):
        found = self.looked()
        self.assertIsNone(found['log'])
        self.assertIn('bootstrap', found['warnings'][0])
        self.assertEqual(len(found['members']), 3)

    def test_a_log_without_records(self):
        self.done('bootstrap')
        status, printed = self.run_it('status')
        self.assertEqual(status, WARNS)
        self.assertIn('no records yet', printed)

    def test_a_node_that_is_behind(self):
        self.begun()
        self.write(1e9)
        self.write()
        behind = next(each for each in self.looked()['nodes']
                      if each['node'] == 'b')
        self.assertEqual(behind['records_behind'], 2)
        self.assertAlmostEqual(behind['since'], 1e9, 3)
        status, printed = self.run_it('status')
        self.assertRegex(
            printed, r'b                2 records behind, \d+'
            ' seconds, since 2001-09-09 01:46:40 UTC')
        self.assertRegex(printed, r'b lacks commits of the last \d+ minutes')

    def test_a_node_that_notes_nothing_new(self):
        self.begun()
        self.write()
        self.assertIn('kept nothing', self.looked()['warnings'][0])
        self.log.let_go(b'a process')
        self.assertIn('none leads', self.looked()['warnings'][0])

    def test_a_node_that_is_dead(self):
        """Nobody commits.  Its clock, which may be wrong, only makes one look
        twice."""
        self.begun()
        for ago in 100, -100:
            self.note('b', time=time.time() - ago)
            status, printed = self.run_it('status')
            self.assertEqual(status, WARNS)
            self.assertIn('b                has all of the log, and says'
                          ' nothing', printed)
            self.assertRegex(
                printed, 'b has said nothing for (100|0) seconds: does it'
                ' run')
            with mock.patch.object(
                    looking.time, 'sleep', lambda seconds: self.note(
                        'b', time=time.time() - ago + 1)):
                self.assertEqual(self.looked()['warnings'], [])

    def test_a_node_in_trouble(self):
        self.begun()
        self.note('b', trouble='no room')
        self.assertEqual(self.looked()['warnings'], [
            'b is in trouble: no room'])
        self.assertIn('has all of the log, and is in trouble: no room',
                      self.run_it('status')[1])

    def test_a_node_that_was_only_copied(self):
        self.begun()
        self.log.note(node_name('b'), Note(
            SELF, self.writer.state.place).packed())
        self.assertEqual(self.looked()['warnings'], [
            'b has not begun yet: start it'])

    def test_a_node_that_is_about_to_follow(self):
        """What it has by the second look is not behind."""
        self.begun()
        self.write()
        with mock.patch.object(
                looking.time, 'sleep', lambda seconds: self.note('b')):
            found = self.looked()
        self.assertEqual(found['nodes'][1]['records_behind'], 0)
        self.assertEqual(found['warnings'], [])

    def test_a_node_that_was_left_behind(self):
        self.begun()
        for _ in range(3):
            self.write()
        self.writer.say(Trim(3))
        while not self.writer.advance():
            pass
        self.log.trim(3)
        found = self.looked()
        self.assertEqual(
            (found['epoch']['number'], found['log']['first']), (1, 3))
        left = next(each for each in found['nodes'] if each['node'] == 'b')
        self.assertTrue(left['trimmed'])
        self.assertRegex(
            found['warnings'][0],
            'b cannot follow.*fsync-quorum forget b;.*bootstrap --from')

    def test_a_record_that_one_member_has_damaged(self):
        """Another one is asked."""
        self.begun()
        read = EtcdLog.read

        def damaged(log, sequence, member=None):
            found = read(log, sequence, member)
            return [b'damaged'] if member is None and found else found

        with mock.patch.object(EtcdLog, 'read', damaged):
            self.assertEqual(self.looked()['epoch']['number'], 1)

    def test_a_note_of_nonsense(self):
        self.begun()
        self.log.note(node_name('b'), b'nonsense')
        self.assertRegex(
            self.looked()['warnings'][0],
            'note of b .*cannot be read: nothing is removed .*forget b')

        self.log.note(stepdown.REQUEST, b'a process')
        self.assertEqual([each['node'] for each in self.looked()['nodes']],
                         ['a', 'b'])

    def test_a_member_is_away(self):
        self.begun()
        gone = self.gateways.members[2]
        gone.close()
        found = self.looked()
        self.assertTrue(found['members'][2]['trouble'])
        self.assertEqual(found['log']['head'], 1)
        self.assertIn('1 of 3 members do not answer', found['warnings'][0])
        self.assertIn(gone.address, found['warnings'][0])

    def test_no_member_answers(self):
        self.begun()
        for each in self.gateways.members:
            each.close()
        found = self.looked()
        self.assertIsNone(found['log'])
        self.assertEqual(found['warnings'], [
            'no majority of the members answers: commits wait until one'
            ' does'])

    def test_a_member_has_lost_its_end(self):
        self.begun()
        self.write()
        self.note('b')
        ends = EtcdLog.ends

        def wrong(log, member=None):
            found = ends(log, member)
            return found if member != 1 else found._replace(
                head=Place(1, bytes(16)))

        with mock.patch.object(EtcdLog, 'ends', wrong):
            found = self.looked()
        self.assertEqual([each['lacks'] for each in found['members']],
                         [False, True, False])
        self.assertIn('has lost records', found['warnings'][0])

    def test_a_member_has_lost_the_only_record(self):
        self.begun()
        ends = EtcdLog.ends

        def none(log, member=None):
            if member == 1:
                raise Missing
            return ends(log, member)

        with mock.patch.object(EtcdLog, 'ends', none):
            found = self.looked()
        self.assertEqual(
            [(each['head'], each['lacks']) for each in found['members']],
            [(1, False), (None, True), (1, False)])

    def test_it_is_full(self):
        self.begun()
        self.store.full = True
        self.assertIn('NOSPACE', self.looked()['warnings'][0])

    def test_a_member_with_much_memory(self):
        self.begun()
        with mock.patch.object(memory, 'resident', return_value=3 << 30):
            status, printed = self.run_it('status')
        self.assertEqual(status, WARNS)
        self.assertIn('3.0 GB of memory', printed)
        self.assertIn('are its options those of the documents', printed)

    def test_by_options(self):
        self.begun()
        status, out, err = run_command(
            commandline.main, 'status', '--log', 'here', '--etcd',
            *self.gateways.addresses)
        self.assertEqual((status, err), (DONE, ''))


class WhichLog(Case):

    def said(self, *arguments):
        status, out, err = run_command(commandline.main, *arguments)
        self.assertEqual((status, out), (CANNOT_RUN, ''))
        self.assertEqual(err.count('\n'), 1, err)
        return err

    def test_none(self):
        self.assertIn('which log?', self.said('status'))
        self.assertIn('which log?', self.said('status', '--log', 'here'))

    def test_options_are_checked_as_keys_are(self):
        three = self.gateways.addresses
        for words, *options in (
                ('log must be', '--log', '', '--etcd', *three),
                ('3 members', '--log', 'a', '--etcd', *three[:2]),
                ('no address', '--log', 'a', '--etcd', 'nonsense'),
                ('belong together', '--log', 'a', '--user', 'x', '--etcd',
                 *three)):
            with self.subTest(words):
                self.assertIn(words, self.said('status', *options))

    def test_no_file_or_another_one(self):
        self.assertIn('cannot be read', self.said(
            'status', '-C', self.path('missing')))
        for text in '<zope>', '', 'x\0\xff':
            with open(self.path('other.conf'), 'w') as file:
                file.write(text)
            self.assertIn('other.conf cannot be read', self.said(
                'status', '-C', self.path('other.conf')))

    def test_a_configuration_without_a_quorum(self):
        path = self.configuration()
        with open(path) as file:
            text = file.read()
        start, end = text.index('  <quorum>'), text.index('</fsyncstorage>')
        with open(path, 'w') as file:
            file.write(text[:start].replace('quorum', 'none') + text[end:])
        self.assertIn('has no sections', self.said('status', '-C', path))


class WithoutThePackage(Case):

    level = 2

    def test_the_help_and_what_is_missing(self):
        config = '-C', self.configuration()
        helped = [], ['status'], ['bootstrap']
        refused = (
            ['status', '--log', 'here', '--etcd', *self.gateways.addresses],
            ['status', *config], ['bootstrap', *config],
            ['promote', *config, 'a'])
        done = subprocess.run(
            [sys.executable, '-c', WITHOUT_GRPC, json.dumps(
                [[*each, '--help'] for each in helped] + [*refused])],
            stdout=subprocess.PIPE, text=True, check=True,
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        found = json.loads(done.stdout)
        for status, out, err in found[:len(helped)]:
            self.assertEqual((status, err), (DONE, ''))
            self.assertIn('exit status', out)
        for arguments, (status, out, err) in zip(
                refused, found[len(helped):], strict=True):
            with self.subTest(arguments):
                self.assertEqual((status, out), (CANNOT_RUN, ''))
                self.assertEqual(err.count('\n'), 1, err)
                self.assertIn("needs the package grpc: pip install"
                              " 'fsyncstorage[quorum]'", err)


class Bootstrap(Case):

    level = 2

    def test_the_first_node(self):
        self.assertIn('is the first node (a)', self.done('bootstrap'))
        self.assertEqual(states.load(self.data()).state.log,
                         self.log.ends().log)
        self.refused('of this name already', 'bootstrap', name='c')

    def test_another_one(self):
        self.begun()
        join = 'bootstrap', '--from', self.path('a')
        self.assertIn(
            'is a node (c) of the log here', self.done(*join, name='c'))
        self.assertEqual(states.load(self.data('c')).state,
                         states.load(self.data('a')).state)
        self.assertIn(node_name('c'), self.log.notes())
        # One in the place of a node that is gone, with its name.
        self.refused('fsync-quorum forget b', *join, name='b')
        self.done('forget', '--yes', 'b')
        self.done(*join, name='b')

    def test_what_does_not_fit(self):
        self.refused('--blobs goes with --from', 'bootstrap', '--blobs', 'x')
        self.refused('no blob-dir', 'bootstrap', '--from', self.path('x'),
                     '--blobs', 'x')
        self.refused('No such file', 'bootstrap', '--from', self.path('x'))

        status, _, err = run_command(
            commandline.main, 'bootstrap', '--log', 'here', '--etcd',
            *self.gateways.addresses)
        self.assertEqual(status, CANNOT_RUN)
        self.assertIn('needs -C', err)

    def test_etcd_that_is_refused(self):
        """As a start would."""
        self.gateways.members[0].version = '3.4.1'
        self.refused('Upgrade it', 'bootstrap')
        self.assertFalse(os.path.exists(self.data()))

    def test_the_files_would_be_those_of_root(self):
        self.configuration()
        if os.geteuid() == 0:
            os.chown(self.path('a'), 1000, -1)
        with mock.patch.object(commandline.os, 'geteuid', lambda: 0):
            self.refused('run this as that user', 'bootstrap')


class WhoLeads(Case):

    def setUp(self):
        super().setUp()
        self.begun()
        patch = mock.patch.object(changing, 'LOOK_EVERY', 0.01)
        patch.start()
        self.addCleanup(patch.stop)

    def asked(self, command, *arguments):
        """In a thread; return when the primary finds the request."""
        thread = Thread(self.run_it, command, *arguments)
        until(lambda: self.log.notes().get(stepdown.REQUEST) == b'a process',
              'a request')
        return thread

    def another_leads(self, node):
        self.log.forget(stepdown.REQUEST)
        self.log.let_go(b'a process')
        self.log.hold(f'{node} process'.encode(), 5.0)

    def test_step_down(self):
        thread = self.asked('step-down')
        self.another_leads('b')
        self.assertEqual(
            thread.result(),
            (DONE, 'a has stepped down, and b leads\n'))

    def test_it_goes_on_to_lead(self):
        thread = self.asked('step-down')
        self.log.note(stepdown.REQUEST, b'a process: it is alone')
        status, printed = thread.result()
        self.assertEqual(status, CANNOT_RUN)
        self.assertIn('a goes on to lead: it is alone', printed)
        self.assertNotIn(stepdown.REQUEST, self.log.notes())

    def test_it_says_nothing(self):
        with mock.patch.object(changing, 'PATIENCE', 0.05):
            self.refused('see its log', 'step-down')

    def test_nobody_leads(self):
        self.log.let_go(b'a process')
        self.refused('none leads', 'step-down')
        self.refused('no node leads now', 'promote', 'b')

    def test_promote(self):
        for node, status, printed in (
                ('b', DONE, 'b leads; it was a\n'),
                ('c', CANNOT_RUN, 'c leads now')):
            thread = self.asked('promote', 'b')
            self.another_leads(node)
            found, words = thread.result()
            self.assertEqual(found, status)
            self.assertIn(printed, words)
            self.log.let_go(f'{node} process'.encode())
            self.lead('a')
        self.assertEqual(self.done('promote', 'a'), 'a leads already\n')

    def test_promote_a_node_that_could_not_lead(self):
        """Another one would, or none."""
        self.note('b', could_lead=False, trouble='its file is damaged')
        self.refused('b could not lead now: its file is damaged', 'promote',
                     'b')
        self.assertNotIn(stepdown.REQUEST, self.log.notes())
        self.log.note(node_name('b'), b'none of ours')
        self.refused('b could not lead now', 'promote', 'b')

    def test_a_node_that_is_none(self):
        self.refused('no node c', 'promote', 'c')
        self.refused('no note of a node c', 'forget', '--yes', 'c')
        self.refused('node must be a name', 'promote', '*step-down')

    def test_forget(self):
        self.assertEqual(self.done('forget', '--yes', 'b'),
                         'b is forgotten\n')
        self.assertNotIn(node_name('b'), self.log.notes())

        # Another one may have the name of the one that leads; if it lives, it
        # notes again.
        self.note('a')
        self.done('forget', '--yes', 'a')
        self.assertNotIn(node_name('a'), self.log.notes())

    def test_it_asks(self):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        for answer, status in ('n\n', CANNOT_RUN), ('\n', CANNOT_RUN), (
                'y\n', DONE):
            with mock.patch.object(sys, 'stdin', Terminal(answer)):
                self.assertEqual(self.run_it('forget', 'b')[0], status)
        self.assertNotIn(node_name('b'), self.log.notes())

        self.note('b')
        with mock.patch.object(sys, 'stdin', io.StringIO('y\n')):
            self.refused('give --yes', 'forget', 'b')
        self.assertIn(node_name('b'), self.log.notes())
