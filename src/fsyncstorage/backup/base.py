"""Ships the base of a generation: what a pack has made of all before it.

It is read, verified and put in steps, so that segments are shipped between
them.  What an earlier try has put of it is found again.
"""

from collections.abc import Iterator

from ..format.window import Window
from . import content
from . import head as heads
from . import timeline
from .blobs import Blobs
from .blobs import Name
from .blobs import note_missing
from .head import Head
from .prefix import File
from .segment import next_segment
from .store import is_there
from .timeline import History
from .timeline import Tip


def put(history: History, path: str, file: File, tip: Tip
        ) -> Iterator[object]:
    """Put the base of the generation of a tip, unless it is there; Exists.

    Its blobs were shipped before, with few exceptions: only those are read.
    (Another uploader may have put the base of a later generation.)
    """
    sequence, pack = history.pack(
        tip.generation, range(history.start(tip.tid), tip.sequence))
    names = history.names_of(sequence)
    if is_there(history.store, names.base(sequence)):
        return
    blobs = Blobs(history.store, names, file)
    found: set[Name] = set()
    perhaps: set[Name] = set()
    at, window = timeline.START, Window(file.read, pack.end)
    while segment := next_segment(window, at):
        found.update(segment.blobs)
        perhaps.update(segment.perhaps)
        at = at._replace(position=segment.end, tid=segment.tid)
        yield segment
    head = Head(heads.BASE, heads.WHOLE, 0, pack.end, pack.plain,
                pack.generation, pack.tid, pack.oid, before=pack.sum)
    yield from blobs.look_for(found | perhaps)
    listed = []
    for blob in blobs.summed(found, perhaps - found):
        listed.append(blob)
        yield blob
    note_missing(path, file, listed)
    if listed:
        head = head._replace(blobs=blobs.put_list(sequence, listed))
        yield from blobs.put(listed)
    yield from content.put_in_steps(
        history.store, names.base(sequence), head, file.read)
