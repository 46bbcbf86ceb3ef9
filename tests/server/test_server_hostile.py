"""One frame of a hostile peer: it runs no code, and harms nobody (I13).

The server is a process of its own: what would kill it, hang it or fill its
memory kills no test.  An honest client beside it is answered, always.
"""

import builtins
import os
import pickle
import socket
import struct
import unittest

import msgpack

from fsyncstorage import FsyncStorage

from ..commands import SCRIPTS
from ..commands import Commands
from ..support import PATIENCE
from . import zeowire

CONFIGURATION = """
<zeo>
  address {address}
  read-only {read_only}
  msgpack {msgpack}
</zeo>
%import fsyncstorage
<fsyncstorage 1>
  path {path}
  blob-dir {path}-blobs
</fsyncstorage>
{more}
"""

MOST_GROWTH = 64 << 10  # KB


def in_status(pid, name):
    """A number that the system says of a process."""
    with open(f'/proc/{pid}/status') as file:
        return next(int(line.split()[1]) for line in file
                    if line.startswith(name))


class Calling:
    """Its pickle calls a function."""

    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


def calls_that_leave(canary):
    """What a pickle may call to leave a file behind."""
    code = f'open({canary!r}, "w").close()'
    yield Calling(os.system, f'touch {canary}')
    yield Calling(eval, code)
    yield Calling(exec, code)
    yield Calling(open, canary, 'w')
    yield Calling(builtins.__import__, 'os')


def message(name, *arguments, number=1, is_async=False):
    return pickle.dumps((number, is_async, name, arguments), 3)


def everywhere(value):
    """Messages that have a value in each of their places."""
    yield pickle.dumps(value, 3)
    for place in range(4):
        parts = [1, False, 'register', ('1', True)]
        parts[place] = value
        yield pickle.dumps(tuple(parts), 3)
    yield message('register', value, True)
    yield message('register', '1', True, value)
    yield message('loadBefore', value, value)
    yield message('undoInfo', 0, 1, {'user_name': value})
    yield message('tpc_begin', 1, b'', b'', {'value': value})


def doubled(levels):
    """A tuple of 2 ** levels parts, which is hashed one by one."""
    value = ()
    for _ in range(levels):
        value = value, value
    return value


def nested(levels):
    """The pickle of a tuple in a tuple, in a tuple."""
    return b'N' + b'\x85' * levels


# 311 bytes.
NO_HASH_ENDS = pickle.dumps((1, False, doubled(60), ()), 3)
A_BIG_MEMO = b'\x80\x03Nr\xff\xff\xff\x0f.'


def nested_messages(levels):
    deep = nested(levels)
    start = b'\x80\x03(K\x01\x89'
    yield start + deep + b')t.'                                   # the name
    for name in b'getInvalidations', b'undoLog', b'server_status':
        yield (start + b'X' + struct.pack('<I', len(name)) + name
               + deep + b'\x85t.')
    yield b'\x80\x03' + deep + b'.'
    yield b'\x80\x03(' + deep + b'\x89X\x04\0\0\0ping)t.'         # the id


class Hostile(Commands):

    read_only = msgpack = False
    handshake = b'Z5'
    more_configuration = ''

    def setUp(self):
        super().setUp()
        self.address = self.path('socket')
        with open(self.path('zeo.conf'), 'w') as file:
            file.write(CONFIGURATION.format(
                address=self.address, path=self.path(),
                read_only=self.read_only, msgpack=self.msgpack,
                more=self.more_configuration))
        if self.read_only:
            # Now it is there.
            FsyncStorage(
                self.path(), blob_dir=self.path('Data.fs-blobs')).close()
        self.process = self.start(
            [*SCRIPTS['fsync-runzeo'], '-C', self.path('zeo.conf')],
            self.is_answered)
        self.canary = self.path('canary')

    def is_answered(self):
        """Does the server answer an honest client?"""
        honest = self.honest, self.call('register', '1', True), self.call(
            'ping')
        try:
            return len(self.talk(*honest)) == len(honest)
        except OSError:
            return False

    @property
    def honest(self):
        return b'M5' if self.msgpack else b'Z5'

    def call(self, name, *arguments):
        parts = 1, False, name, arguments
        return (msgpack.packb(parts) if self.honest == b'M5'
                else pickle.dumps(parts, 3))

    def talk(self, *messages):
        """What the server says; it answers each message, or goes away."""
        said = []
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(PATIENCE)
            peer.connect(self.address)
            try:
                peer.sendall(b''.join(map(zeowire.frame, messages)))
                inbox = zeowire.Inbox()
                while len(said) < len(messages) and (
                        data := peer.recv(1 << 16)):
                    said += inbox.add(data)
            except ConnectionError:
                pass
        return said

    def strike(self, content, registered):
        """Return when the server has gone away, or has answered."""
        self.talk(
            self.handshake, *[self.call('register', '1', True)] * registered,
            content)

    def pids(self):
        return [self.process.pid]

    def largest(self):
        """The most memory that the processes had, in KB."""
        return sum(in_status(pid, 'VmHWM') for pid in self.pids())

    def check(self, contents, stages=(False, True)):
        before = self.largest()
        for content in contents:
            for registered in stages:
                self.strike(content, registered)
                self.assertIsNone(self.process.poll(), 'it is alive')
                self.assertFalse(os.path.exists(self.canary), 'code was run')
        self.assertLess(self.largest() - before, MOST_GROWTH)
        self.assertTrue(self.is_answered())


@unittest.skipUnless(os.path.exists('/proc/self/status'), 'asks Linux')
class Pickles(Hostile):

    level = 2

    def test_what_would_harm(self):
        """Nobody runs code, hashes for ever, makes room for what is only
        announced, or ends the process by what is nested."""
        for what, contents, stages in (
                ('calls', [content for bomb in calls_that_leave(self.canary)
                           for content in everywhere(bomb)], (False, True)),
                ('a name that takes for ever to hash', [NO_HASH_ENDS],
                 (False, True)),
                ('the number of a memo', [A_BIG_MEMO], (False, True)),
                ('nested tuples', nested_messages(60000), [False]),
                ('a million of them', nested_messages(1 << 20), [True]),
                *(('many small containers', [
                    b'\x80\x03(' + bytes([opcode]) * (1 << 20) + b't.'],
                   [True]) for opcode in b'])}')):
            with self.subTest(what):
                self.check(contents, stages)
        # A client may choose msgpack.
        register = msgpack.packb((1, False, 'register', ('1', True)))
        handshake, reply = self.talk(b'M5', register)
        self.assertEqual(handshake, b'Z5+fsync1')
        self.assertEqual(msgpack.unpackb(reply)[:3], [1, 0, '.reply'])


class PicklesReadOnly(Pickles):

    level = 3
    read_only = True


class Msgpack(Hostile):

    level = 2
    msgpack = True
    handshake = b'M5'

    def test_what_would_harm(self):
        """What is announced takes no memory."""
        for most, registered in ((60000, False), (1 << 20, True)):
            self.check([
                b'\x94\x01\xc2\xa4ping' + header * (most // len(header))
                for header in (
                    b'\xdd\xff\xff\xff\xff', b'\xdc\xff\xff', b'\xdc\x0f\xff',
                    b'\xdf\xff\xff\xff\xff', b'\x91', b'\x81\xa1a',
                    b'\xdb\xff\xff\xff\xff', b'\xc6\xff\xff\xff\xff')
            ], [registered])
        count = 1 << 20
        for value in b'\x80', b'\x90', b'\x91\xc0', b'\xc7\0\5':
            self.check([b'\xdd' + struct.pack('>I', count) + value * count],
                       [True])
        bombs = [content for bomb in calls_that_leave(self.canary)
                 for content in everywhere(bomb)]
        self.check(bombs)
        # A client that answers M5 with Z5 is no client.
        self.assertEqual(
            self.talk(b'Z5', message('register', '1', True)),
            [b'M5+fsync1'])
        self.handshake = b'Z5'
        self.check(bombs)
