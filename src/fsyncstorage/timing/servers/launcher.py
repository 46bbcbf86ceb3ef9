"""What a server process runs: a ZEO server, with the driver as its watchman.

It chooses the event loop, slows syncs and reads, and calls the `main` of the
server.
It speaks with the driver as `served` says.  It ends when nobody can speak to
it any more, or the driver is gone.
"""

import contextlib
import functools
import importlib
import json
import os
import sys
import threading
import time

import ZODB.event

from .. import latency
from .. import loops
from .. import supervisor


def main(options):
    """With the options of `served.running`; returns when the server ends."""
    os.chdir(options['directory'])
    supervisor.follow(options['bond'])
    loops.use(options['loop'])
    with latency.slowed(options['sync_latency']) as syncs, \
            _cold_reads(options['read_latency']) as misses:
        # As any subscriber would be told, but without zope.event.
        ZODB.event.notify = functools.partial(_tell, syncs, misses)
        server = importlib.import_module(options['module'])
        server.main(['-C', options['configuration']])


def _cold_reads(read_latency):
    if read_latency is None:
        return contextlib.nullcontext(())
    return latency.cold_reads(read_latency)


def _tell(syncs, misses, event):
    # StorageServer notifies of `Serving` when clients can connect.
    if type(event).__name__ == 'Serving':
        threading.Thread(
            target=_answer, args=(syncs, misses), daemon=True).start()
        _write(event.address)


def _answer(syncs, misses):
    for _ in sys.stdin:
        _write({
            'cpu_seconds': time.process_time(), 'syncs': len(syncs),
            'misses': len(misses)})
    os._exit(0)


def _write(value):
    print(json.dumps(value), flush=True)


if __name__ == '__main__':
    main(json.loads(sys.argv[1]))
