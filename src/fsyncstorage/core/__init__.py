"""What a read does most often, in C; without it, its twins in plain Python.

The core is built where there is a C compiler, on 64-bit Linux; elsewhere, and
with FSYNC_CORE=off (or PURE_PYTHON) in the environment, the names here are
None, and their users take the twins, which do the same more slowly.  They are
what to read first, and what a test compares the core with:

- Source       format.source: answers loads from a data file, by its map
- Answering    local.answering: a reader's loads, in a process that reads
- load         client.storage: a load: the file, the cache, or a reader
"""

import os
from typing import Any

from ..format import UNCERTAIN
from ..format import NotAMap

Source: Any = None
Answering: Any = None
load: Any = None
#: Stands for the descriptor of a file or socket that the core cannot use.
NO_DESCRIPTOR = (1 << 31) - 1
#: For people.
IN_USE = 'plain Python'


def _is_wanted() -> bool:
    return (os.environ.get('FSYNC_CORE') != 'off'
            and os.environ.get('PURE_PYTHON', '0') == '0')


try:
    from . import _core  # type: ignore[attr-defined]
except ImportError:
    pass
else:
    if _is_wanted():
        _core.use(UNCERTAIN, NotAMap)
        Source = _core.Source
        Answering = _core.Answering
        load = _core.load
        IN_USE = 'C'
