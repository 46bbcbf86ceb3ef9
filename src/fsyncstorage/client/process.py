"""The process that opened a client: a fork of it must not use the client.

The child has the sockets and files of its parent, but not the threads that
serve them: it would wait for ever, or overwrite what the parent has written.
"""

import os

from ZEO.Exceptions import ClientDisconnected


class Process:

    def __init__(self, what):
        self._what = what
        self._id = os.getpid()

    @property
    def is_here(self):
        return os.getpid() == self._id

    def check(self):
        if os.getpid() != self._id:
            raise ClientDisconnected(
                f'this {self._what} was opened by another process, before a'
                ' fork')
