"""The index of a data file that grows by what the log has.

The index is made once, at the start, from the index file and from the data
after it; then each batch that counts is added.  So a storage can be opened on
the file without reading it.

The index file never has more than what the node has kept, as that is saved
first (commit.replica, `keep_up_to`).  One that has more is of something else,
and is not used.
"""

import functools
import logging
import os

from ZODB.fsIndex import fsIndex

from ... import datafile
from ...format import index
from ...format.window import Window
from ...storage import opening
from ...storage import recovery
from ...storage.checkpoints import TIMES_ITS_SIZE
from ..log.reading import ANEW
from ..log.reading import Refused

logger = logging.getLogger(__name__)

OF_OUR_FILE = (
    'This file is damaged where the log has nothing any more. Run fsync-check'
    f' to see all of it, and {ANEW}')


class Indexing:

    def __init__(self, file: datafile.DataFile, end: int) -> None:
        """Read what is before `end`; raise Refused if it is damaged."""
        self._file = file
        self._known = opening.nothing_known()
        loaded = opening.load_index(file.name)
        if loaded is not None and loaded.position <= end:
            self._known = opening.trusted(file, loaded)
        #: The index file covers all before this position.
        self._saved_to = self._tried_at = self._known.end
        self._size = 0 if loaded is None else os.path.getsize(self._path)
        self.count(end, OF_OUR_FILE)

    def replaced(self, file: datafile.DataFile, found: fsIndex,
                 end: int) -> None:
        """The file was replaced by a packed one, with this index and end.

        The tid of the last transaction stays, even if the pack has dropped
        that transaction.
        """
        self._file = file
        self._known = recovery.Recovered(found, end, self._known.tid)
        self._saved_to = self._tried_at = end

    @property
    def _path(self) -> str:
        return self._file.name + '.index'

    def count(self, end: int, advice: str) -> None:
        """All before this end counts.

        Raise Refused, with this advice, if the transactions are not sound.
        """
        window = Window(
            functools.partial(os.pread, self._file.fileno()), end)
        found, damage = recovery.read_on(window, self._known)
        if damage is not None:
            raise Refused(f'{self._file.name}: {damage}. {advice}')
        self._known = found

    @property
    def content(self) -> opening.Content:
        return opening.Content(*self._known, self._saved_to)

    def save_if_due(self, every: int) -> None:
        """Write the index file, if a start would have to read `every` bytes.

        All that counts is durable.  (A large index is written less often.)
        """
        end = self._known.end
        if end - self._tried_at < max(every, TIMES_ITS_SIZE * self._size):
            return
        self._tried_at = end
        path = self._path
        temporary = path + '.index_tmp'
        try:
            index.save(temporary, index.Snapshot(self._known.index, end),
                       self._file)
            datafile.disk.replace(temporary, path)
            datafile.disk.sync_directory(os.path.dirname(path))
            self._size, self._saved_to = os.path.getsize(path), end
        except OSError as error:
            datafile.remove_if_there(temporary)
            logger.warning(
                '%s: no index could be written (%s); the next start scans more'
                ' of the data', self._file.name, error)
