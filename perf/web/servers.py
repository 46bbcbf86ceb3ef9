"""The WSGI servers that can take part in `fsync-time wsgi`, by name.

A server runs in a process of its own, or in several, on a socket that was
bound before: so nobody has to look for its port.  It is forked from the
process that takes the sample, and is gone when the `with` ends.  Each process
that serves opens the database by itself, behind the last fork, and says so.
"""

import contextlib
import importlib.util
import multiprocessing
import multiprocessing.connection
import os
import socket

from .. import supervisor
from ..supervisor import one_line
from ..servers import served
from . import app

_FORK = multiprocessing.get_context('fork')

_HOST = '127.0.0.1'
_BACKLOG = 128

#: For a server to answer what it has begun, and for it to end.
_GRACE = 2
_ENDING_SECONDS = 10


class WebServerFailed(Exception):
    """The message is one line."""


def missing(name):
    """Why this server cannot take part, or None."""
    if importlib.util.find_spec(name) is None:
        return 'it is not installed'
    return None


class WebServer(served.Nobody):

    def __init__(self, sentinels):
        self.sentinels = sentinels


@contextlib.contextmanager
def running(name, site, processes, threads):
    """The `Site` of a web server, whose database is served by another.

    The database is open in all of its processes by then.
    """
    with socket.create_server((_HOST, 0), backlog=_BACKLOG) as listener:
        receiver, sender = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=_serve, args=(
            SERVERS[name], listener, app.Application(site), processes,
            threads, sender))
        process.start()
        sender.close()
        try:
            for _ in range(processes):
                if receiver not in multiprocessing.connection.wait(
                        [receiver, *site.server.sentinels]):
                    raise EOFError('the server ended')
                if failure := receiver.recv():
                    raise WebServerFailed(
                        f'{name} cannot open the database: {failure}')
            yield served.Site(
                WebServer((*site.server.sentinels, process.sentinel)),
                listener.getsockname(), site.open)
        except EOFError as error:
            process.join(_GRACE)
            if process.is_alive():
                raise
            raise WebServerFailed(
                f'{name} died with exit code {process.exitcode}') from error
        finally:
            process.terminate()
            process.join(_ENDING_SECONDS)
            process.kill()
            process.join()
            receiver.close()


def _serve(serve, listener, application, processes, threads, sender):
    supervisor.follow()
    # A server that fails says so in the pipe, or by its end.
    with open(os.devnull, 'w') as nowhere:
        os.dup2(nowhere.fileno(), 2)

    def make():
        try:
            application.open()
        except BaseException as error:
            sender.send(one_line(error))
            raise
        sender.send(None)
        return application

    serve(listener, make, processes, threads)


#: Bytes of an answer that waitress keeps when the client is slow to take them;
#: its default is 16 MB, which shows in the memory of who sends large files.
MOST_UNSENT = 1 << 18

# Each is called with a function that makes the application, for each process
# that serves to call.

def _waitress(listener, make, processes, threads):
    import waitress
    waitress.serve(
        make(), sockets=[listener], threads=threads,
        outbuf_high_watermark=MOST_UNSENT)


def _gunicorn(listener, make, processes, threads):
    from gunicorn.app.base import BaseApplication

    settings = {
        'bind': f'fd://{listener.detach()}',
        'workers': processes,
        'threads': threads,
        # The thread that does is the parent's alone.
        'post_fork': lambda arbiter, worker: supervisor.follow(),
        'graceful_timeout': _GRACE,
        # It would be in the home; older releases have none.
        'control_socket_disable': True,
    }

    class Application(BaseApplication):

        def load_config(self):
            for name in settings.keys() & self.cfg.settings.keys():
                self.cfg.set(name, settings[name])

        def load(self):  # in the worker
            return make()

    Application().run()


SERVERS = {
    'waitress': _waitress,
    'gunicorn': _gunicorn,
}
