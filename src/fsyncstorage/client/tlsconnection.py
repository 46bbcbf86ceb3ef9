"""A TLS connection on which one thread reads while another one writes.

The objects of OpenSSL may be used by one thread at a time.  So no thread waits
inside them: the socket does not block, and a thread that must wait does so
without the lock.  This class has the methods of a socket that a stream needs.
"""

import select
import socket
import ssl
import threading


class TLSConnection:

    def __init__(self, connection):
        connection.setblocking(False)
        self._socket = connection
        self._using = threading.Lock()
        self.fileno = connection.fileno

    def recv(self, most, flags=0):
        """Receive up to `most` bytes; with `flags`, do not wait.

        `most` must be at least the size of a TLS record, 16 KB: the rest of a
        record would lie inside OpenSSL, where `poll` does not see it.
        """
        while True:
            with self._using:
                try:
                    return self._socket.recv(most)
                except ssl.SSLWantReadError:
                    wanted = select.POLLIN
                except ssl.SSLWantWriteError:
                    wanted = select.POLLOUT
            if flags:
                raise BlockingIOError
            self._wait(wanted)

    def sendall(self, data):
        left = memoryview(data)
        while left:
            with self._using:
                try:
                    left = left[self._socket.send(left):]
                    continue
                except ssl.SSLWantWriteError:
                    wanted = select.POLLOUT
                except ssl.SSLWantReadError:
                    wanted = select.POLLIN
            self._wait(wanted)

    def _wait(self, wanted):
        poll = select.poll()
        poll.register(self._socket, wanted)
        poll.poll()

    def shutdown(self, how):
        # Not SSLSocket.shutdown, which only its own thread may call.
        socket.socket.shutdown(self._socket, how)

    def close(self):
        self._socket.close()
