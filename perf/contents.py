"""A large Data.fs, written sequentially and with little memory.

It has FileStorage's format and our seals.  The root refers to folders, a
folder to its pages, and a page to its folder.  A transaction makes a folder
with its pages, and the next one writes some of these again.
"""

import itertools
import zlib

from persistent import Persistent
from ZODB._compat import FILESTORAGE_MAGIC
from ZODB.FileStorage.format import DataHeader
from ZODB.FileStorage.format import TxnHeader
from ZODB.utils import p64
from ZODB.utils import z64

from fsyncstorage.format import seal

PAGES = 999         # of a folder
AGAIN = 100         # of them are written once more
TEXT = b'words' * 50    # of a page
USERS = b'/ admin', b'/ anna', b'/ ben'
# By how much a tid grows in a minute.
MINUTE = 1 << 32
FIRST_TID = 0x03f0000000000000
# The module of the records' classes, as it is in a pickle.
MODULE = b'perf.contents\n'


class Root(Persistent):
    """Its `items` are the folders."""


class Folder(Persistent):
    """Its `items` are pages."""


class Page(Persistent):
    """Its only item is its folder."""


class File:
    """A file to which transactions are appended."""

    def __init__(self, file):
        self._file = file
        self._end = file.write(FILESTORAGE_MAGIC)
        self._tid = FIRST_TID
        self.records = 0

    def append(self, user, path, records):
        """`records` are (oid, position of the previous revision, data).

        Return the positions of the new ones.
        """
        self._tid += MINUTE
        tid, begin = p64(self._tid), self._end
        header = TxnHeader(
            tid, 0, ' ', len(user), len(path), seal.room(b''))
        header.user, header.descr, header.ext = user, path, b''
        at = begin + header.headerlen()
        positions, body = [], []
        for oid, previous, data in records:
            positions.append(at)
            made = DataHeader(oid, tid, previous, begin, 0, len(data))
            body += made.asString(), data
            at += made.recordlen()
        header.tlen = at - begin
        body = b''.join([*body, p64(header.tlen)])
        front = header.asString()
        self._file.write(front + seal.make(
            front, b'', b' ', begin, header.tlen, begin, zlib.crc32(body)))
        self._file.write(body)
        self._end = at + 8
        self.records += len(positions)
        return positions


def build(path, objects):
    """Make the file; return the number of its records."""
    with open(path, 'wb') as opened:
        file = File(opened)
        folders = range(1, objects, PAGES + 1)
        file.append(b'', b'initial', [
            (z64, 0, record('Root', folders, 'Folder'))])
        for folder in folders:
            pages = range(folder + 1, min(folder + PAGES + 1, objects))
            page = record('Page', [folder], 'Folder', TEXT)
            user = USERS[folder // PAGES % len(USERS)]
            _, *positions = file.append(user, b'/site/%d/add' % folder, [
                (p64(folder), 0, record('Folder', pages, 'Page')),
                *((p64(each), 0, page) for each in pages)])
            file.append(user, b'/site/%d/edit' % folder, [
                (p64(each), previous, page)
                for each, previous in list(zip(pages, positions))[:AGAIN]])
        return file.records


def record(name, targets, name_of_targets, text=b''):
    """Of that class, with references and text, as ZODB writes them."""
    classes = itertools.chain(
        [b'c%b%b\nq\7' % (MODULE, name_of_targets.encode())],
        itertools.repeat(b'h\7'))
    refers = b''.join(b'C\x08%bq\6%b\x86q\x08Q' % (p64(each), its_class)
                      for each, its_class in zip(targets, classes))
    return (b'\x80\3c%b%b\nq\1.\x80\3}q\2(X\5\0\0\0itemsq\3]q\4('
            b'%beX\4\0\0\0textq\5X%b%bu.' % (
                MODULE, name.encode(), refers,
                len(text).to_bytes(4, 'little'), text))


def is_page(number):
    """Is this object, which is not the root, a page?"""
    return number % (PAGES + 1) != 1
