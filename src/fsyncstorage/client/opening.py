"""Opens the commit channel, in a thread that then reads it."""

import threading

from ..wire import commits
from . import readchannel
from .stream import CLOSED
from .stream import RECEIVED_AT_ONCE
from .stream import Stream
from .tlsconnection import TLSConnection


def opening(loop, name, *server):
    """A future of `loop` for the Stream, or for `Lost`."""
    future = loop.create_future()

    def tell(stream, error):
        if future.done():  # nobody waits for it any more
            if stream is not None:
                stream.close('the connection has ended')
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(stream)

    def run():
        stream = error = None
        try:
            stream = _open(*server)
        except Exception as reason:
            error = reason
        try:
            loop.call_soon_threadsafe(tell, stream, error)
        except RuntimeError:  # the loop is closed
            if stream is not None:
                stream.end('the client is closed')
        if stream is not None:
            stream.read_in_background()

    threading.Thread(
        target=run, daemon=True, name=f'{name} commit channel').start()
    return future


def _open(address, ssl, hostname, instance, ticket, *arguments):
    """Connect, and wait for the welcome; `Lost` if there is none.

    The thread that calls this must be the one that reads in the background.
    """
    frames = commits.Client(instance, ticket)
    connection = readchannel.connect(address, ssl, hostname)
    try:
        connection.sendall(frames.hello)
        while (event := frames.next()) is None:
            if not frames.fill(connection.recv, RECEIVED_AT_ONCE):
                raise readchannel.Lost(CLOSED)
        if event.__class__ is commits.Refused:
            raise readchannel.ChannelRefused(*event)
        connection.settimeout(None)
        if ssl is not None:
            connection = TLSConnection(connection)
        return Stream(connection, frames, *arguments)
    except (OSError, commits.PeerError) as error:
        connection.close()
        raise readchannel.Lost(str(error)) from error
    except BaseException:
        connection.close()
        raise
