"""Opens a client: ours, or stock's with our cache of blobs.

Which of the two it is, is decided here, once, and stays until the storage is
closed.  A client of stock works at any server.  Ours works at a server of ours
alone, and waits if it meets another one, after a rollback for example.
"""

import logging
import random
import time

from ..wire import frames
from .failover import FIRST_TRY
from .failover import NoServer
from .failover import greeting
from .options import AUTO
from .options import OURS
from .options import STOCK
from .options import addresses_of
from .options import server_kind as checked_kind
from .storage import MB
from .storage import WAIT_TIMEOUT
from .storage import FsyncClient

logger = logging.getLogger(__name__)

# Seconds between two looks for a server.
PAUSE = 0.5

#: What only our own client takes.
_OURS_ALONE = ('read_channels', 'local_reads', 'local_reads_socket',
               'local_blob_dir', 'server_timeout')


def open_client(addr, storage='1', cache_size=20 * MB, name='',
                wait_timeout=None, *, server_kind=AUTO, wait=True, ssl=None,
                ssl_server_hostname=None, **options):
    """The arguments of a FsyncClient, and which kind of server it is."""
    kind = checked_kind(server_kind)
    if kind == AUTO:
        kind = _kind_of_server(
            name or str(addr), addresses_of(addr), ssl, ssl_server_hostname,
            (wait_timeout or WAIT_TIMEOUT) if wait else 0)
    options.update(
        wait=wait, wait_timeout=wait_timeout, ssl=ssl, name=name,
        ssl_server_hostname=ssl_server_hostname)
    if kind == OURS:
        return FsyncClient(addr, storage, cache_size, **options)
    from .stock import StockClient  # with ZEO's event loop
    for each in _OURS_ALONE:
        if options.pop(each, None) is not None:
            logger.info('%s: %s has no effect at a stock server',
                        name or addr, each.replace('_', '-'))
    return StockClient(addr, storage, cache_size, **options)


def _kind_of_server(name, addresses, ssl, hostname, seconds):
    """By the greeting of the first one that is there; STOCK if there is none
    in time: a client of stock works with either."""
    ends = time.monotonic() + seconds
    while True:
        for address in addresses:
            try:
                said = greeting(address, ssl, hostname, FIRST_TRY)
            except NoServer as error:
                logger.debug('%s: %s: %s', name, address, error)
            else:
                return OURS if said.endswith(frames.SUFFIX) else STOCK
        if time.monotonic() >= ends:
            logger.warning(
                '%s: no server is there to ask of which kind it is: this'
                ' client commits and reads as one of stock, which works at any'
                ' server. The key "server-kind ours" says that it is one of'
                ' fsyncstorage', name)
            return STOCK
        time.sleep(PAUSE * random.uniform(0.5, 1))
