"""Servers in processes of their own, to be frozen and killed."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys

from ZEO.Exceptions import ClientDisconnected

from fsyncstorage.client.storage import FsyncClient
from perf.ports import free_address

from ..support import PATIENCE
from ..support import TestCase
from ..support import commit
from ..support import until

CONF = '''
%import fsyncstorage
<zeo>
  address 127.0.0.1:{port}
</zeo>
<fsyncstorage 1>
  path {path}
  blob-dir {path}.blobs
  local-reads {local_reads}
</fsyncstorage>
'''


class ServerProcess:

    def __init__(self, test, address, name, local_reads):
        self.address = address
        self.path = test.path(name)
        conf = f'{self.path}.conf'
        with open(conf, 'w') as file:
            file.write(CONF.format(
                port=self.address[1], path=self.path,
                local_reads=local_reads))
        self._process = subprocess.Popen(
            [sys.executable, '-m', 'fsyncstorage.server.runzeo', '-C', conf],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        test.addCleanup(self.kill)

    def until_it_answers(self):
        until(self._answers, 'a server that answers')

    def _answers(self):
        with contextlib.suppress(OSError):
            with socket.create_connection(self.address, PATIENCE) as found:
                return found.recv(1)
        return None

    def freeze(self):
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def thaw(self):
        self._process.send_signal(signal.SIGCONT)

    def kill(self):
        self._process.kill()
        self._process.wait()


class ProcessesTestCase(TestCase):
    """Servers of the same data, each with a file of its own."""

    local_reads = 'off'
    #: What there is: number -> data.
    records = {number: b'%d' % number for number in range(1, 50)}

    def setUp(self):
        super().setUp()
        with contextlib.closing(self.open(
                'Data.fs', blob_dir=self.path('Data.fs.blobs'))) as storage:
            self.tid = commit(storage, self.records)
            self.fill(storage)

    def fill(self, storage):
        """Store more."""

    def serve(self, address=None):
        server = self.start(address=address)
        server.until_it_answers()
        return server

    def start(self, name='Data.fs', address=None):
        if name != 'Data.fs':
            shutil.copyfile(self.path(), self.path(name))
            shutil.copytree(
                self.path('Data.fs.blobs'), self.path(f'{name}.blobs'))
        return ServerProcess(
            self, address or free_address(), name, self.local_reads)

    def connect(self, *addresses, **options):
        options = {'wait_timeout': PATIENCE, 'local_reads': 'off',
                   'server_timeout': 1, **options}
        client = FsyncClient(list(addresses), **options)
        self.addCleanup(client.close)
        return client

    def connect_to_two(self, **options):
        """A client of a first server, that knows of a second one."""
        self.second = self.start('Copy.fs')
        self.first = self.serve()
        client = self.connect(self.first.address, **options)
        self.second.until_it_answers()
        client.new_addr([self.first.address, self.second.address])
        return client


def server_of(client):
    """The address that it uses now."""
    protocol = client._server.client.protocol
    return None if protocol is None else protocol.addr


def outcome(thread):
    """The class of the error; None: there was none."""
    try:
        thread.result()
    except AssertionError:  # it hangs
        raise
    except ClientDisconnected:
        return ClientDisconnected
    except Exception as error:
        return type(error)
    return None
