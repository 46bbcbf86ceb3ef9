"""Start the ZEO server of fsyncstorage.

Usage: fsync-runzeo [-C URL] [-a ADDRESS] [-f FILENAME] [-h]

It takes the configuration files and the options of runzeo, and serves stock
clients:

-C/--configuration URL -- configuration file or URL
-a/--address ADDRESS -- server address of the form PORT, HOST:PORT, or PATH
                        (a PATH must contain at least one "/")
-f/--filename FILENAME -- filename for a FileStorage
-t/--timeout TIMEOUT -- transaction timeout in seconds (default no timeout)
-h/--help -- print this usage message and exit
--version -- print the version of fsyncstorage and exit
--pid-file PATH -- relative path to output file containing this process's pid;
                   default $(INSTANCE_HOME)/var/ZEO.pid but only if envar
                   INSTANCE_HOME is defined
--metrics ADDRESS -- metrics for Prometheus, and probes, at this address of the
                     form PORT (of this machine) or HOST:PORT; else that of
                     FSYNC_METRICS in the environment
--backup STORE -- ship the storage to this store while it is served, as
                   "fsync-backup run" does; else FSYNC_BACKUP in the
                   environment
--greeting KIND -- "ours" (the default) tells clients that this is a server of
                   fsyncstorage; "stock" greets as a server of ZEO does, for
                   clients that do not take ours; else FSYNC_GREETING in the
                   environment

Unless -C is specified, -a and -f are required.
"""

import contextlib
import ctypes
import logging
import os
import resource
import ssl
import sys

import zc.lockfile
import ZConfig
import ZEO.runzeo
from ZODB.POSException import StorageError

from .. import core
from ..metrics import address
from ..metrics import exporters
from ..metrics import probes
from ..storage.host import host_is
from ..version import own_version
from . import backup
from . import hosting
from .manager import Manager
from .server import Server

logger = logging.getLogger(__name__)

# Errors whose message explains why a storage cannot be opened.
REFUSALS = zc.lockfile.LockError, OSError, StorageError

# An option of malloc, and its value: the default of glibc, in bytes.
M_MMAP_THRESHOLD, MAPPED_FROM = -3, 1 << 17


def _address(text):
    """None for an empty value: many tools cannot leave a variable unset."""
    return address.checked(text) if text else None


def _greets_as_stock(text):
    if text not in ('', 'ours', 'stock'):
        raise ValueError(f'the greeting is ours or stock, not {text!r}')
    return text == 'stock'


class Options(ZEO.runzeo.ZEOOptions):

    __doc__ = __doc__

    # Stock's schema: a zeo.conf parses under runzeo, zeoctl and here.
    schemadir = os.path.dirname(ZEO.runzeo.__file__)

    def __init__(self):
        super().__init__()
        self.add('metrics', None, None, 'metrics=', _address,
                 env='FSYNC_METRICS')
        self.add('backup', None, None, 'backup=', env='FSYNC_BACKUP')
        self.add('greets_as_stock', None, None, 'greeting=', _greets_as_stock,
                 env='FSYNC_GREETING')

    def print_version(self, dummy):
        """The base class would print that of zdaemon."""
        print(f'fsync-runzeo {own_version()}')
        sys.exit(0)

    def load_configfile(self):
        try:
            super().load_configfile()
        except ZConfig.SchemaError as error:
            if error.message != "type name cannot be redefined: 'ssl'":
                raise
            raise ZConfig.SchemaError(
                'a server cannot have the sections of a client, whose "ssl" is'
                ' another one: leave out "%import fsyncstorage.client" (or'
                ' "%import ZEO")'
                ) from error


class Runner(ZEO.runzeo.ZEOServer):
    """Stock's runner, but a signal ends it between two callbacks of the loop.

    Stock's handlers raise SystemExit inside a callback: for example, at a
    moment at which only some of the clients were told of a commit.
    """

    _status = 0
    _has_pidfile = False
    #: Keeps the listening socket of the metrics open.
    _metrics = None
    #: Ships the storage while it is served.
    _backup = None

    def __init__(self, options):
        super().__init__(options)
        # Tests pass stock's options, which have no `metrics`.
        self._metrics_address = getattr(options, 'metrics', None)
        # A copy: the manager takes variables out of the original.
        self._environment = dict(os.environ)
        self._manager = Manager(os.environ)
        self._backup_store = getattr(options, 'backup', None)
        storages = getattr(options, 'storages', None) or ()
        hosting.refuse_two_nodes(storages)
        if self._backup_store and len(storages) > 1:
            raise ValueError('--backup is for a server of one storage: let'
                             ' "fsync-backup run" run beside it for each')
        self._hosting = hosting.Hosting(
            self._manager, next((each.name for each in storages), ''))

    def handle_sigterm(self):
        self._end('terminated by SIGTERM', 0)

    def handle_sigint(self):
        self._end('terminated by SIGINT', 0)

    def handle_sighup(self):
        self._end('restarted by SIGHUP', 1)

    def _end(self, words, status):
        ZEO.runzeo.log(words)
        self._hosting.was_signalled = True
        if self.server is None:
            sys.exit(status)
        self._status = status
        self.server.stop()

    def handle_sigusr2(self):
        loop = self.server and self.server.acceptor.event_loop
        if loop is None or loop.is_closed():
            super().handle_sigusr2()
        else:
            # Not through the mailbox: it does not wake the loop for its own
            # thread.  This handler runs in that thread, but the loop may be
            # asleep.
            loop.call_soon_threadsafe(super().handle_sigusr2)

    def main(self):
        logger.info('fsyncstorage %s, its core in %s', own_version(),
                    core.IN_USE)
        _allow_all_descriptors()
        _give_back_memory()
        # Stock sets the handlers only when the storages are open, which may
        # take long.  Until then, process 1 of a container would ignore the
        # signals: it has no default actions for them.
        self.setup_signals()
        hosting.let_signals_come()
        host_is(self._hosting)
        super().main()
        if self._hosting.begins_anew:
            hosting.begin_anew(self._hosting, self._environment)
        sys.exit(self._status or self._hosting.status)

    def make_pidfile(self):
        """Not yet: it may be the file of a server that is still running.  It
        is written once the storages are open (open_storages)."""

    def open_storages(self):
        exporters.process_is(probes.STARTING)
        if self._metrics_address is not None:
            self._metrics = exporters.Hold(self._metrics_address)
            self._hosting.metrics = self._metrics
        try:
            super().open_storages()
        except REFUSALS as error:
            logger.error('no storage, no server: %s', error)
            sys.exit(f'fsync-runzeo: {error}')
        if self._backup_store and not all(
                map(backup.is_possible, self.storages.values())):
            sys.exit('fsync-runzeo: --backup is for an <fsyncstorage>')
        super().make_pidfile()
        self._has_pidfile = True

    def remove_pidfile(self):
        if self._has_pidfile:
            super().remove_pidfile()

    def create_server(self):
        options = self.options
        msgpack = options.msgpack
        if not isinstance(msgpack, bool):
            msgpack = bool(os.environ.get('ZEO_MSGPACK'))
        self.server = Server(
            options.address,
            self.storages,
            read_only=options.read_only,
            client_conflict_resolution=options.client_conflict_resolution,
            msgpack=msgpack,
            invalidation_queue_size=options.invalidation_queue_size,
            invalidation_age=options.invalidation_age,
            transaction_timeout=options.transaction_timeout,
            ssl=options.ssl,
            tls_from=options.configfile and os.path.abspath(
                options.configfile),
            metrics=self._metrics_address,
            # Tests pass stock's options, which do not have it.
            greets_as_stock=bool(
                getattr(options, 'greets_as_stock', None)))
        self._hosting.serves(self.server)
        if self._backup_store:
            self._backup = backup.Backup(
                *self.storages.values(), self._backup_store)
        self._manager.watch(self.server.acceptor.event_loop)
        exporters.process_is(probes.SERVING)
        self._warn_of_strangers()

    def loop_forever(self):
        if not self._hosting.is_over:
            super().loop_forever()

    def close_server(self):
        exporters.process_is(probes.STOPPING)
        if not self._hosting.begins_anew:
            self._manager.stopping()
        super().close_server()
        if self._backup is not None:
            self._backup.close()
        if self._metrics is not None:
            self._metrics.close()

    def _warn_of_strangers(self):
        listening = [each.getsockname()
                     for each in self.server.acceptor.sockets]
        for host, port, *_ in open_to_others(listening, self.options.ssl):
            logger.warning(
                'listening on %s port %s without client certificates: any'
                ' program that can connect can read and write everything',
                host, port)


def open_to_others(addresses, context):
    """Return the listening addresses that other machines reach without a
    certificate; `context` is the server's SSLContext, or None.

    ZEO has no passwords: any program that can connect may read and write
    everything.  So a TCP address that other machines can reach should be
    served over TLS with client certificates, or in a network where every
    machine is trusted.  docs/security.rst says how.
    """
    if context is not None and context.verify_mode == ssl.CERT_REQUIRED:
        return []
    return [each for each in addresses if isinstance(each, tuple)
            and not address.is_loopback(each[0])]


def _allow_all_descriptors():
    """Raise the limit to what the system allows: the default is small, for
    programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _give_back_memory():
    """Let long answers go back to the system when they are freed.

    glibc takes memory of this size or more from the system for each request.
    But each time that such memory is freed, it raises the size, to 32 MB at
    most: long answers then share a heap that hardly ever shrinks.  A size that
    was set stays.
    """
    set_option = getattr(ctypes.CDLL(None), 'mallopt', None)
    if set_option is not None:
        set_option(M_MMAP_THRESHOLD, MAPPED_FROM)


def main(args=None):
    options = Options()
    options.realize(args)
    try:
        runner = Runner(options)
    except ValueError as error:  # too many storages
        sys.exit(f'fsync-runzeo: {error}')
    runner.main()


if __name__ == '__main__':
    main()
