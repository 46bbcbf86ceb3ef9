"""FsyncStorage: a sibling of FileStorage, with the same file format.

storage       what is called from outside; opening, closing, maintenance
ecosystem     the inner names of a FileStorage that others know
opening       what is in the file, its index and its blobs when it is opened
commits       begin, vote, finish, abort; from the append to the answer
records       what a transaction stores, deletes, restores and undoes
undo          which records undo a transaction
transaction   one transaction, from its begin until it is appended

Imports point down this list, and to the modules outside of this package.
"""

from .commits import AsyncFinish
from .storage import FsyncStorage

__all__ = ['AsyncFinish', 'FsyncStorage']
