"""The stores that tests run on; obstore's are missing where it is."""

import base64
import contextlib
import email.utils
import hmac
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request

from fsyncstorage.backup import head as heads
from fsyncstorage.backup import timeline
from fsyncstorage.backup.directory import Directory
from fsyncstorage.backup.store import LARGEST
from fsyncstorage.backup.store import Entry
from fsyncstorage.backup.store import Exists
from fsyncstorage.backup.store import Missing
from fsyncstorage.backup.store import StoreError
from fsyncstorage.backup.store import TooLarge
from perf.ports import free_port

from ..support import until

with contextlib.suppress(ImportError):
    from obstore.store import MemoryStore

    from fsyncstorage.backup import objectstore

HAS_OBSTORE = 'MemoryStore' in globals()
#: Servers of S3 that a test can start.
MOTO, VERSITY = 'moto_server', 'versitygw'
KEY = 'only-for-tests'
#: A server of Azure, with its account and key, which are the same everywhere.
AZURITE, ACCOUNT = 'azurite-blob', 'devstoreaccount1'
KEY_OF_AZURITE = (
    'Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOt'
    'r/KBHBeksoGMGw==')


class Simple:
    """A store in a dictionary, which a test can look into and change."""

    name = 'simple'

    def __init__(self):
        self.objects = {}
        #: When each was put.
        self._times = {}
        self._lock = threading.Lock()
        #: Called with the name of a method and a key, before it does anything.
        self.before = lambda method, key: None

    def create(self, key, data):
        self.before('create', key)
        with self._lock:
            if key in self.objects:
                raise Exists(key)
            self.objects[key] = data
            self._times[key] = time.time()

    def overwrite(self, key, data):
        self.before('overwrite', key)
        self.objects[key] = data
        self._times[key] = time.time()

    def get(self, key):
        self.before('get', key)
        if key not in self.objects:
            raise Missing(key)
        if len(self.objects[key]) > LARGEST:
            raise TooLarge(key, len(self.objects[key]))
        return self.objects[key]

    def front(self, key, length):
        self.before('front', key)
        if key not in self.objects:
            raise Missing(key)
        return self.objects[key][:length]

    def list(self, directory, after=''):
        self.before('list', directory)
        for key in sorted(self.objects):
            if key.startswith(directory.rstrip('/') + '/') and key > after:
                yield Entry(key, len(self.objects[key]),
                            self._times.get(key, time.time()))

    def delete(self, key):
        self.objects.pop(key, None)

    @contextlib.contextmanager
    def failing(self, number):
        """The call of this number fails; yield the keys of those that have.
        """
        calls, failed = iter(range(number, -1, -1)), []

        def fail(method, key):
            if not next(calls, 1):
                failed.append(key)
                raise StoreError('away')

        self.before = fail
        try:
            yield failed
        finally:
            self.before = lambda method, key: None


def in_directory(case):
    return Directory(case.directory)


def in_memory(case):
    return objectstore.ObjectStore(MemoryStore(), 'memory')


def is_missing(program):
    return not (HAS_OBSTORE and shutil.which(program))


def in_s3(case, program):
    """A bucket of a server that ends with the test."""
    port = free_port()
    endpoint = f'http://127.0.0.1:{port}'
    bucket = case.path('served/bucket')
    os.makedirs(bucket)
    os.mkdir(case.path('beside'))
    command, name = {
        MOTO: ([MOTO, '-H', '127.0.0.1', '-p', str(port)], 'bucket'),
        VERSITY: ([VERSITY, '--access', KEY, '--secret', KEY,
                   '--port', f'127.0.0.1:{port}', 'posix',
                   '--sidecar', case.path('beside'), case.path('served')],
                  'bucket')}[program]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    case.addCleanup(process.wait)
    case.addCleanup(process.kill)
    until(lambda: _listens(port) or process.poll() is not None, program)
    if program == MOTO:
        urllib.request.urlopen(urllib.request.Request(
            f'{endpoint}/{name}', method='PUT')).close()
    return objectstore.opened(
        f's3://{name}/in/it', config={
            'endpoint': endpoint, 'region': 'us-east-1',
            'access_key_id': KEY, 'secret_access_key': KEY},
        client_options={'allow_http': True})


def in_azure(case):
    """A container of a server that ends with the test."""
    port = free_port()
    process = subprocess.Popen(
        [AZURITE, '--skipApiVersionCheck', '--location', case.directory,
         '--blobHost', '127.0.0.1', '--blobPort', str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    case.addCleanup(process.wait)
    case.addCleanup(process.kill)
    until(lambda: _listens(port) or process.poll() is not None, AZURITE)
    endpoint = f'http://127.0.0.1:{port}/{ACCOUNT}'
    urllib.request.urlopen(_new_container(f'{endpoint}/container')).close()
    return objectstore.opened(
        'az://container/in/it', config={
            'account_name': ACCOUNT, 'account_key': KEY_OF_AZURITE,
            'endpoint': endpoint}, client_options={'allow_http': True})


def _new_container(url):
    headers = {'x-ms-date': email.utils.formatdate(usegmt=True),
               'x-ms-version': '2021-08-06'}
    # Azure's "Shared Key": eleven headers that are not sent, and those above.
    signed = '\n'.join([
        'PUT', *[''] * 11, *map(':'.join, headers.items()),
        f'/{ACCOUNT}{urllib.parse.urlsplit(url).path}', 'restype:container'])
    signature = base64.b64encode(hmac.digest(
        base64.b64decode(KEY_OF_AZURITE), signed.encode(), 'sha256'))
    return urllib.request.Request(
        f'{url}?restype=container', method='PUT', headers={
            **headers, 'Content-Length': '0',
            'Authorization': f'SharedKey {ACCOUNT}:{signature.decode()}'})


def _listens(port):
    with contextlib.suppress(OSError):
        socket.create_connection(('127.0.0.1', port)).close()
        return True
    return False


def end_of_chain(store, history):
    """The tip of all that the log of a history has, read in its order."""
    chain = timeline.Chain()
    for sequence, entry in history.entries():
        chain.add(
            heads.unpack(store.front(entry.key, heads.SIZE), timeline.IN_LOG),
            sequence, entry.key)
    return chain.tip
