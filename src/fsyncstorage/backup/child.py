"""The process in which a server lets its backup run (server.backup).

It does what `fsync-backup run` does, gives way to all others, and ends with
the server, which passes its lines on to the log.
"""

import logging
import threading

from ..processes import parent
from ..processes.parent import Message
from ..processes.parent import ParentProcess
from . import running
from .head import Damaged
from .layout import Database
from .opening import opened
from .prefix import DurablePrefix
from .uploader import Stopped
from .uploader import Uploader


def main(pid: int) -> None:
    parent.serve(pid, _ship, lambda error: {
        'failed': str(error),
        'for good': isinstance(error, (Stopped, Damaged))})


def _ship(job: Message, parent: ParentProcess) -> Message:
    logger = logging.getLogger('fsyncstorage')
    logger.addHandler(_Lines(parent))
    logger.setLevel(logging.INFO)
    stop = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(parent, stop),
                     daemon=True).start()
    running.run(Uploader(
        opened(job['store']), Database(job['database']),
        DurablePrefix(job['path'], job['blobs'])), stop)
    return {'ended': True}


def _wait_for_the_end(parent: ParentProcess, stop: threading.Event) -> None:
    parent.command()
    stop.set()


class _Lines(logging.Handler):
    """Lines of the log are reports."""

    def __init__(self, parent: ParentProcess) -> None:
        super().__init__()
        self._parent = parent

    def emit(self, record: logging.LogRecord) -> None:
        self._parent.report({
            'line': [record.name, record.levelno, record.getMessage()]})
