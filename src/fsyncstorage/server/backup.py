"""The backup of a served storage, in a process of its own.

`fsync-runzeo --backup STORE` does what `fsync-backup run` does beside it.  The
process ships; a thread here passes its lines on to the log, and starts it
again when it has died, but not when the store has another history than the
file: an operator has to decide.
"""

import contextlib
import logging
import os
import threading

from ..processes.starting import ChildProcess
from ..processes.starting import NotStarted

logger = logging.getLogger(__name__)

MODULE = 'fsyncstorage.backup.child'
#: The name of the database in the store, as for `fsync-backup` itself.
DATABASE = 'main'
#: Seconds until a process that has ended is followed by another one.
AGAIN_AFTER = 10.0
#: Seconds that a server which ends gives its backup to ship the rest.
LAST_ROUND = 10.0


def is_possible(storage):
    """Can the server hand out the file of this storage (handout)?"""
    return hasattr(type(storage), 'object_map')


class Backup:

    def __init__(self, storage, store):
        """`store` is the name of one."""
        self._path = os.path.abspath(storage.getName())
        self._job = {
            'path': self._path, 'store': store, 'database': DATABASE,
            'blobs': getattr(storage, 'blob_dir', None) or None}
        self._closing = threading.Event()
        #: The process that ships now.
        self._process = None
        #: What it has failed with is logged once.
        self._said = None
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f'backup to {store}')
        self._thread.start()

    def close(self):
        """Called when the storage is closed, so that all is durable: it is
        shipped, if that does not take long."""
        self._closing.set()
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):  # it ends at this moment
                process.send({'end': True})
        self._thread.join(LAST_ROUND)
        if process is not None and self._thread.is_alive():
            process.end()
            self._thread.join()

    # In the thread

    def _run(self):
        while self._ships() and not self._closing.wait(AGAIN_AFTER):
            pass

    def _ships(self):
        """Return when the process has ended: should there be another one?"""
        try:
            with contextlib.closing(ChildProcess(MODULE, [])) as process:
                process.begin(self._job)
                self._process = process
                return not self._closing.is_set() and self._passes_on(process)
        except (NotStarted, OSError) as error:
            self._warn(error)
            return True
        finally:
            self._process = None

    def _passes_on(self, process):
        for report in process.reports():
            match report:
                case {'line': [str(name), int(level), str(words)]}:
                    logging.getLogger(name).log(level, '%s', words)
                case {'ended': True}:
                    return False
                case {'failed': words, 'for good': True}:
                    logger.error('%s: the backup has stopped: %s', self._path,
                                 words)
                    return False
                case {'failed': words}:
                    self._warn(words)
                    return True
        if not self._closing.is_set():
            self._warn('its process has died')
        return True

    def _warn(self, words):
        if self._said != str(words):
            self._said = str(words)
            logger.warning('%s: the backup has ended, and is tried again: %s',
                           self._path, words)
