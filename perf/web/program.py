"""A program: a web application, in waitress or in gunicorn.

The server gets a socket that was bound before, so its port is known.  Each
process that serves opens the database itself, after the last fork, and reports
it; when all have done so, the driver is told the address.

It talks to the driver as `served` says.  It ends when its standard input is
closed, or the driver dies.
"""

import json
import os
import signal
import socket
import sys
import threading
import time

from fsyncstorage.timing.running import supervisor
from fsyncstorage.timing.servers import served

from . import applications

#: Connections that wait while all threads are busy.
BACKLOG = 1024

#: Bytes of an answer that waitress keeps when the client is slow to take them;
#: its default is 16 MB, which shows in its memory when it sends large files.
MOST_UNSENT = 1 << 18

#: Seconds for gunicorn to end requests that it has begun.
_GRACE = 2


def main(options):
    """With the options of `served.running`; returns when the server ends.

    The application is one of `applications`, made with the options.
    """
    os.chdir(options['directory'])
    supervisor.follow(options['bond'])
    application = getattr(applications, options['application'])(options)
    listener = socket.create_server(('127.0.0.1', 0), backlog=BACKLOG)
    reader, writer = os.pipe()
    answering = threading.Thread(target=_answer, daemon=True, args=(
        os.fdopen(reader), options['processes'], listener.getsockname()))
    answering.start()
    parent = os.getpid()

    def make():
        try:
            application.open()
        except Exception as error:
            os.write(writer, f'{supervisor.one_line(error)}\n'.encode())
            # A thread of the parent says so, and ends the parent.  Of a worker
            # that ends before it, gunicorn would say something behind that.
            if os.getpid() == parent:
                answering.join()
            while os.getppid() == parent:
                time.sleep(0.01)
            os._exit(1)
        os.write(writer, b'\n')
        return application

    SERVERS[options['server']](
        listener, make, options['processes'], options['threads'])


def _answer(opened, processes, address):
    for _ in range(processes):
        if failure := opened.readline().strip():
            print(f'the database cannot be opened: {failure}',
                  file=sys.stderr, flush=True)
            os._exit(1)
    served.tell(address)
    served.answer()
    # Gunicorn ends its workers, too.
    os.kill(os.getpid(), signal.SIGTERM)


# Each of these gets a function that makes the application; each process that
# serves has to call it.

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
        # A fork does not copy the thread that follows.
        'post_fork': lambda arbiter, worker: supervisor.follow(),
        'graceful_timeout': _GRACE,
        # What it says of workers that start may come behind a failure.
        'loglevel': 'warning',
        # Or it would be in the home directory; older releases have no such
        # setting.
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


if __name__ == '__main__':
    main(json.loads(sys.argv[1]))
