"""The program of a server process: a ZEO server that the driver watches.

It chooses the event loop, slows syncs, and calls the `main` of the server.  It
talks to the driver as `served` says, and ends when its standard input is
closed, or the driver dies.
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

    `counted` are lists by name; the driver is told their lengths, as with the
    syncs.
    """
    os.chdir(options['directory'])
    supervisor.follow(options['bond'])
    loops.use(options['loop'])
    with latency.slowed(options['sync_latency']) as syncs:
        # Works without zope.event, which subscribers need.
        ZODB.event.notify = functools.partial(
            _tell, {'syncs': syncs, **counted})
        server = importlib.import_module(options['module'])
        server.main(['-C', options['configuration']])


def _tell(counted, event):
    # The StorageServer sends a `Serving` when clients can connect.
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
