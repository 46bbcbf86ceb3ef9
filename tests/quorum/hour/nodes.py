"""The nodes: fsync-runzeo each, with a disk of its own that may be full."""

import contextlib
import http.client
import json
import os
import shutil
import subprocess

from ...commands import SCRIPTS
from .program import Program

ZEO, PROBES = 8100, 8101
LOG = 'hour'
#: Bytes of a node's disk, which is in memory.
DISK = 1 << 30
#: What is filled block by block.
NEARLY = 8 << 20

CONFIG = """
%import fsyncstorage
<zeo>
  address {address}:{zeo}
</zeo>
<fsyncstorage 1>
  path {data}
  blob-dir {blobs}
  durability quorum
  <quorum>
    node {name}
    log {log}
    etcd {etcd}
    lease {lease}s
    log-limit {limit}MB
  </quorum>
  <metrics>
    address {address}:{probes}
  </metrics>
</fsyncstorage>
<eventlog>
  level INFO
  <logfile>
    path STDERR
    format %(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s
    dateformat %H:%M:%S
  </logfile>
</eventlog>
"""


class Node(Program):

    def __init__(self, host, directory, etcd, lease, limit):
        self.name = host.name
        self.address = host.address, ZEO
        self.disk = os.path.join(directory, self.name)
        self.data = os.path.join(self.disk, 'Data.fs')
        self.blobs = os.path.join(self.disk, 'blobs')
        self._ballast = os.path.join(self.disk, 'ballast')
        self._configuration = os.path.join(directory, f'{self.name}.conf')
        super().__init__(host, directory, [
            *SCRIPTS['fsync-runzeo'], '-C', self._configuration])
        os.mkdir(self.disk)
        subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={DISK}', 'tmpfs',
                        self.disk], check=True)
        with open(self._configuration, 'w') as file:
            file.write(CONFIG.format(
                address=host.address, zeo=ZEO, probes=PROBES, data=self.data,
                blobs=self.blobs, name=self.name, log=LOG,
                etcd=' '.join(etcd), lease=lease, limit=limit))

    def begin(self):
        self._do('bootstrap')

    def join(self, other):
        self._do('bootstrap', '--from', other.disk, '--blobs', other.blobs)

    def quorum(self, *words):
        """A process of fsync-quorum, and what it says in its pipe."""
        return subprocess.Popen(
            [*self.host.inside, *SCRIPTS['fsync-quorum'], words[0], '-C',
             self._configuration, *words[1:]], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd=self.directory, env=self.environment)

    def _do(self, *words):
        process = self.quorum(*words)
        said, _ = process.communicate(timeout=120)
        if process.returncode:
            raise AssertionError(said.decode(errors='replace'))

    def look_at_its_end(self):
        """The words about an end of its own; None: there is none."""
        if not self.is_to_run or self.runs:
            return None
        self.is_to_run = False
        last = self.last_words().strip().splitlines() or ['']
        return f'status {self.process.returncode}: {last[-1]}'

    def ready(self):
        """The status of the probe, and its words; of none, 0."""
        if not self.runs or self.is_frozen:
            return 0, ''
        connection = http.client.HTTPConnection(
            self.host.address, PROBES, timeout=1)
        try:
            connection.request('GET', '/ready')
            with connection.getresponse() as answer:
                said = json.loads(answer.read())
            return answer.status, said['storages'].get('1', '')
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            return 0, ''
        finally:
            connection.close()

    @property
    def leads(self):
        return self.ready()[0] == 200

    @property
    def follows(self):
        status, words = self.ready()
        return status == 503 and 'standby, 0 records and 0 bytes' in words

    def fill_disk(self):
        most = shutil.disk_usage(self.disk).free - NEARLY
        with open(self._ballast, 'wb', buffering=0) as file:
            with contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, max(1, most))
                file.seek(0, os.SEEK_END)
                while True:  # until there is no room
                    file.write(bytes(4096))

    def make_room(self):
        if os.path.exists(self._ballast):
            os.unlink(self._ballast)

    def lose_disk(self):
        """All that it has is gone."""
        for entry in os.scandir(self.disk):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry)
            else:
                os.unlink(entry)

    def unmount(self):
        """Else the directory could not be removed."""
        subprocess.run(['umount', '--lazy', self.disk], check=True)

    def keep(self, directory):
        """Copy what it has, as it is in memory only."""
        shutil.copytree(self.disk, os.path.join(directory, self.name),
                        ignore=shutil.ignore_patterns(
                            'ballast', 'Data.fs.local'))

    def leftovers(self):
        """Names beside the data that a node at rest does not have.

        (The socket of a primary that was killed stays until it leads again.)
        """
        known = {'Data.fs', 'Data.fs.index', 'Data.fs.quorum', 'Data.fs.lock',
                 'Data.fs.old', 'Data.fs.checkpoint', 'Data.fs.local', 'blobs',
                 'blobs.old'}
        return sorted(
            name for name in os.listdir(self.disk)
            if name not in known and not name.startswith('Data.fs.tr'))
