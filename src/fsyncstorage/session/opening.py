"""Opens a client: ours, or stock's with our cache of blobs.

Which of the two it is, is decided here, once, and stays until the storage is
closed.  A client of stock works at any server.  Ours works at a server of ours
alone, and waits if it meets another one, after a rollback for example.
"""

import logging
import random
import time

from . import frames
from . import storage
from .failover import FIRST_TRY
from .failover import NoServer
from .failover import greeting

logger = logging.getLogger(__name__)

AUTO, OURS, STOCK = SERVERS = 'auto', 'ours', 'stock'
# Seconds between two looks for a server.
PAUSE = 0.5

#: What only our own client takes.
_OURS_ALONE = ('read_channels', 'local_reads', 'local_reads_socket',
               'local_blob_dir', 'server_timeout')


def open_client(addr, *args, server=AUTO, wait=True, wait_timeout=None,
                ssl=None, ssl_server_hostname=None, name='', **options):
    """The arguments of a FsyncClient, and which kind of server it is."""
    if server == AUTO:
        server = _kind_of_server(
            name or str(addr), storage.addresses_of(addr), ssl,
            ssl_server_hostname,
            (wait_timeout or storage.WAIT_TIMEOUT) if wait else 0)
    options.update(
        wait=wait, wait_timeout=wait_timeout, ssl=ssl, name=name,
        ssl_server_hostname=ssl_server_hostname)
    if server == OURS:
        return storage.FsyncClient(addr, *args, **options)
    from .stock import StockClient  # with ZEO's event loop
    for each in _OURS_ALONE:
        if options.pop(each, None) is not None:
            logger.info('%s: %s has no effect at a stock server',
                        name or addr, each.replace('_', '-'))
    return StockClient(addr, *args, **options)


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
