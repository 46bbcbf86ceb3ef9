"""Serves streams beside what the server serves today, for the tests of this
room; the server gets this when the old channels go."""

from ..server.channel import Unwelcome
from ..server.connection import Connection
from ..server.connection import announcement
from ..server.door import CHANNEL
from ..server.door import Full
from ..server.server import Server
from ..server.session import Session
from . import frames
from .reading import welcomed
from .serving import OurSession
from .serving import Streams


class OurConnection(Connection):

    def _handshake(self, message):
        if not frames.is_hello(message):
            return super()._handshake(message)
        try:
            self._meet(message)
        except Unwelcome as refusal:
            reason, text = refusal.args
            self._write(frames.frame(frames.Refused(
                0, reason, text.encode())))
            self.close()

    def _meet(self, body):
        lowest, highest = frames.hello_versions(body)
        version = frames.common_version(lowest, highest)
        if version is None:
            raise Unwelcome(
                frames.OTHER_VERSION,
                f'this server speaks the versions {frames.LOWEST} to'
                f' {frames.HIGHEST} of the protocol, and the client'
                f' {lowest} to {highest}')
        hello = frames.taken(body)
        if hello.__class__ is frames.HelloOfAReader:
            self._become_reader(hello, version)
            return
        self.protocol_version = announcement(False)
        session = OurSession(self.session.server, self, self.session.read_only)
        self.session, self._receive = session, session.receive
        session.meet(hello, version)

    def _become_reader(self, hello, version):
        server = self.session.server
        reader = welcomed(server, self, hello)
        try:
            server.door.stay(self, CHANNEL, reader)
        except Full:
            raise Unwelcome(
                frames.TOO_MANY, 'no descriptors are left') from None
        server.connections.add(reader)
        server.connections.discard(self)
        self._write(frames.frame(frames.Welcome(
            0, version, server.instance, frames.NO_TID, b'')))
        self._send()
        self._successor = reader
        self.closed = True


class OurServer(Server):

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        for service in self.services.values():
            service.streams = Streams()

    def new_connection(self, listener, newcomer):
        session = Session(self, self.read_only)
        connection = OurConnection(listener, session, newcomer)
        session.connection = session.announced_on = connection
        return connection
