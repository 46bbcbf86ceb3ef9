"""Running the suites of ZODB over a node that writes, with the log in memory.

Each file is a node's, with a log of its own.  A file that is opened for the
first time, or that a test has put there, begins a log, as a bootstrap would;
one that was closed is joined again.
"""

import os

from fsyncstorage import datafile
from fsyncstorage.quorum.files import state as states
from fsyncstorage.quorum.history import fold
from fsyncstorage.storage import opening

from ..quorum.fakelog import Engine
from ..quorum.logged import bootstrap
from ..quorum.nodes import Line
from ..quorum.nodes import started
from ..quorum.samples import LOG
from ..quorum.samples import SELF
from . import zodbsuites


class Node(zodbsuites.with_policy('quorum')):
    """Is called like stock's FileStorage."""

    def __init__(self, path, create=False, read_only=False, stop=None, **kw):
        if read_only or stop is not None:
            super().__init__(path, create, read_only, stop, **kw)
        else:
            started(
                super().__init__, path, _log_of(path, create), 'node', **kw)


_engines = {}  # by the path of the file


def _log_of(path, create):
    """The log of the node whose file this is."""
    path = os.path.realpath(path)
    _refuse_if_locked(path)
    if create or not os.path.exists(path):
        for suffix in '', '.index', states.SUFFIX:
            datafile.remove_if_there(path + suffix)
        bootstrap(path)
        _engines[path] = Engine(LOG)
    elif path not in _engines or not _is_that_of_the_log(path):
        datafile.remove_if_there(path + states.SUFFIX)
        zodbsuites.FsyncStorage(path).close()  # a torn tail is cut off
        with datafile.open_existing(path) as file:
            states.save(
                path, fold.beginning(LOG, 0, file.size()), _reading(file),
                SELF)
        _engines[path] = Engine(LOG)
    return Line(_engines[path])


def _reading(file):
    return lambda position, length: os.pread(file.fileno(), length, position)


def _refuse_if_locked(path):
    opening.lock_name(path).close()


def _is_that_of_the_log(path):
    kept = states.load(path)
    if kept is None:
        return False
    with datafile.open_existing(path) as file:
        return states.misfit(kept, _reading(file), file.size()) is None
