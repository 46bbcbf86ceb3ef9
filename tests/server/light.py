"""A client that is a socket and little else, for many in one process."""

import socket

from ZODB.utils import z64

from . import zeowire


class Client:
    """One connection; it only blocks until it is registered, and in a call."""

    def __init__(self, address):
        self._inbox = zeowire.Inbox()
        self._answer = None
        self._serial = z64
        self.socket = socket.socket(
            socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        try:
            self._connect(address)
            self._register()
        except BaseException:
            self.close()
            raise

    def _connect(self, address):
        self.socket.connect(address)
        if self.socket.family == socket.AF_INET:
            # As ZEO's own client does.
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _register(self):
        greeting, = self._inbox.add(self._read())
        if not greeting.startswith(zeowire.HANDSHAKE):  # ours adds its own
            raise ConnectionError(f'the server speaks {greeting!r}')
        self.socket.sendall(zeowire.frame(zeowire.HANDSHAKE))
        self.call('register', '1', False)

    def close(self):
        self.socket.close()

    def call(self, name, *arguments):
        """Call a method of the server, and wait for the answer."""
        self.socket.sendall(zeowire.call(zeowire.CALL, name, *arguments))
        self._answer = None
        while self._answer is None:
            self.receive()
        return self._answer[0]

    def receive(self):
        """Handle the data that came; is the commit done?"""
        done = False
        for message in self._inbox.add(self._read()):
            message_id, flags, name, arguments = zeowire.read(message)
            if name == 'invalidateTransaction':
                self._see(arguments[0])
            elif name == '.reply':
                if flags:
                    error, its = arguments
                    raise ConnectionError(f'the server answered {error}{its}')
                done |= self._replied(message_id, arguments)
        return done

    def _replied(self, message_id, result):
        if message_id == zeowire.VOTE:
            self.socket.sendall(zeowire.FINISH_MESSAGE)
        elif message_id == zeowire.FINISH:
            self._see(result)
            self._serial = result
        else:
            self._answer = [result]
        return message_id == zeowire.FINISH

    def _see(self, tid):
        """The server has told it of this commit."""

    def _read(self):
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError('the server closed the connection')
        return data
