"""FsyncStorage: a sibling of FileStorage, with the same file format.

storage       opening, closing, reading, maintenance
ecosystem     the inner names of a FileStorage that other programs use
opening       what is in the file, its index and its blobs when it is opened
commits       begin, store, undo, vote, finish, abort; up to the answer
told          what a server passes to a vote and a finish
checks        what a vote compares, and its conflicts
journal       the open file, its index and its end
outcome       what became of the commit with an id
statistics    figures for the operator
undo          which records undo a transaction
transaction   one transaction, from its begin until it is appended
spool         what it stores, in a file without a name
tids          the next transaction id, by the clock
checkpoints   the index file, written while commits go on
objectmap     where objects are, for local clients, in memory shared with them
host          the process that waits for a storage, or may have to close it
leftovers     files that interrupted work left beside the data
recovery      tells the torn tail of a crash from damage
crashmark     the mark beside a file whose last commits may be missing
conflicts     who resolves a conflict, and the process that does it
resolution    what that process does: which records it unpickles, its limits

Imports point down this list, and to the modules outside of this package.
"""

from .storage import FsyncStorage
from .told import AsyncFinish

__all__ = ['AsyncFinish', 'FsyncStorage']
