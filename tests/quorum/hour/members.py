"""Members of etcd: started, killed, damaged, replaced."""

import glob
import os
import random
import re
import shutil

from fsyncstorage.quorum.history.record import FRONT
from fsyncstorage.quorum.history.record import MAGIC

from ..etcdcluster import asked
from ..etcdcluster import program
from .program import Program

#: Bytes at the end of a file of the WAL in which bits are flipped.
NEAR_THE_END = 1 << 20
#: The options that docs/quorum.rst asks for, of etcd 3.6.
FLAGS = ('--feature-gates', 'InitialCorruptCheck=true',
         '--snapshot-catchup-entries', '50')


def _peer(host):
    return f'http://{host.address}:2380'


class Member(Program):

    def __init__(self, host, directory, cluster, more):
        self.name = host.name
        self.client = f'http://{host.address}:2379'
        self.peer = _peer(host)
        self.data = os.path.join(directory, self.name)
        #: It may say anything, and has to be replaced.
        self.is_damaged = False
        super().__init__(host, directory, [
            program(), '--name', self.name, '--data-dir', self.data,
            '--listen-client-urls', self.client,
            '--advertise-client-urls', self.client,
            '--listen-peer-urls', self.peer,
            '--initial-advertise-peer-urls', self.peer,
            '--initial-cluster', cluster, '--log-level', 'warn', *more])

    def start(self, state='new'):
        super().start('--initial-cluster-state', state)

    def ask(self, path, **fields):
        """Its answer; None: it gave none."""
        return asked(self.host.address, 2379, path, **fields)

    @property
    def status(self):
        return self.ask('/v3/maintenance/status')

    @property
    def is_sound(self):
        """It runs, knows a leader, and answers what a majority confirms."""
        return (self.runs and not self.is_frozen and not self.is_damaged
                and self.ask('/v3/kv/range', key='eA==') is not None)

    def damage(self, how, seed):
        """While it does not run: what is in `DAMAGES`; return the name of the
        file, or None."""
        chosen = random.Random(seed)
        pattern = 'wal/*.wal' if 'wal' in how else 'snap/db'
        paths = sorted(glob.glob(os.path.join(self.data, 'member', pattern)))
        if not paths:
            return None
        with open(paths[-1], 'r+b') as file:
            raw = file.read()
            end = len(raw.rstrip(b'\0'))  # etcd makes its files larger first
            if how == 'the end of its wal':
                size = min(end, int(10 ** chosen.uniform(2, 5)))
                file.seek(end - size)
                file.write(bytes(size))
            else:
                for at in _places(how, chosen, raw, end):
                    file.seek(at)
                    file.write(bytes([raw[at] ^ 1 << chosen.randrange(8)]))
        self.is_damaged = True
        return os.path.basename(paths[-1])


#: What is flipped or lost: bits of its log, of its database, of records of
#: ours in that; or it has lost the end of its log.
DAMAGES = ('its wal', 'its database', 'records in its database',
           'the end of its wal')


def _places(how, chosen, raw, end):
    """Where bits flip."""
    begin, records = 0, []
    if how == 'its wal':
        begin = max(0, end - NEAR_THE_END)
    elif how == 'records in its database':
        records = [found.start() for found in re.finditer(
            re.escape(MAGIC), raw)]
    for _ in range(chosen.randint(1, 30)):
        if records:
            yield chosen.choice(records) + chosen.randrange(FRONT)
        else:
            at = chosen.randrange(begin, end)
            while not raw[at]:  # nobody reads most of those that are 0
                at = chosen.randrange(begin, end)
            yield at


class Members(list):

    def __init__(self, hosts, directory, with_checks):
        more = FLAGS if with_checks else ()
        cluster = ','.join(
            f'{each.name}={_peer(each)}' for each in hosts)
        super().__init__(
            Member(each, directory, cluster, more) for each in hosts)

    @property
    def leader(self):
        """The member that leads; None: nobody says so."""
        for each in self:
            status = each.status if each.runs and not each.is_frozen else None
            if status and status.get('leader') == (
                    status['header']['member_id']):
                return each
        return None

    def replace(self, member):
        """With an empty directory, as the runbook has it.

        A generator: it yields while an answer is waited for.
        """
        member.kill()
        while True:
            listed = self._ask_others(member, '/v3/cluster/member/list')
            if listed is not None:
                old = [each['ID'] for each in listed['members']
                       if member.peer in each['peerURLs']]
                if not old:
                    break
                self._ask_others(
                    member, '/v3/cluster/member/remove', ID=old[0])
            yield
        while self._ask_others(member, '/v3/cluster/member/add',
                               peerURLs=[member.peer]) is None:
            yield
        shutil.rmtree(member.data, ignore_errors=True)
        member.is_damaged = False
        member.start('existing')
        while not member.is_sound:
            yield
        self.disarm()

    def disarm(self):
        """Take the alarms back that etcd has raised of a damaged member."""
        found = self[0].ask('/v3/maintenance/alarm', action='GET') or {}
        for each in found.get('alarms', ()):
            self[0].ask('/v3/maintenance/alarm', action='DEACTIVATE',
                        memberID=each['memberID'], alarm=each['alarm'])

    def _ask_others(self, member, path, **fields):
        for each in self:
            if each is not member and each.runs and not each.is_frozen:
                answer = each.ask(path, **fields)
                if answer is not None:
                    return answer
        return None
