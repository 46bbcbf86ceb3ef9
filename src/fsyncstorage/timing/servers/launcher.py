"""What a server process runs: a ZEO server, with the driver as its watchman.

It chooses the event loop, slows syncs, and calls the `main` of the server.  It
speaks with the driver as `served` says.  It ends when nobody can speak to
it any more, or the driver is gone.
"""

import functools
import importlib
import json
import os
import sys
import threading
import time

import ZODB.event

from ..running import latency
from ..running import loops
from ..running import supervisor
from . import served


def main(options, **counted):
    """With the options of `served.running`; returns when the server ends.

    What is counted besides the syncs: by name, lists that grow.
    """
    os.chdir(options['directory'])
    supervisor.follow(options['bond'])
    loops.use(options['loop'])
    with latency.slowed(options['sync_latency']) as syncs:
        # As any subscriber would be told, but without zope.event.
        ZODB.event.notify = functools.partial(
            _tell, {'syncs': syncs, **counted})
        server = importlib.import_module(options['module'])
        server.main(['-C', options['configuration']])


def _tell(counted, event):
    # StorageServer notifies of `Serving` when clients can connect.
    if type(event).__name__ == 'Serving':
        threading.Thread(
            target=_answer, args=(counted,), daemon=True).start()
        served.tell(event.address)


def _answer(counted):
    served.answer(lambda: {
        'cpu_seconds': time.process_time(),
        **{name: len(each) for name, each in counted.items()}})
    os._exit(0)


if __name__ == '__main__':
    main(json.loads(sys.argv[1]))
