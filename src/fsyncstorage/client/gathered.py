"""Records that follow each other in a cache, and are not in its file yet.

They are the bytes that will be in the file: a header, the data, and the oid
again.  Until they are written, the end of a record is changed here.
"""

import struct

from ZODB.utils import z64

# Status, size, oid, from which tid to which, no version, length of the data.
HEADER = struct.Struct('>cI8s8s8sHI')
# Where the two tids are.
_BEGIN, END = 13, 21


class Gathered:

    def __init__(self):
        #: The position of the first one.
        self.begin = 0
        self._pieces = []
        self._headers = {}  # position of a record -> number of its header

    def __bool__(self):
        return bool(self._pieces)

    def __contains__(self, position):
        return position in self._headers

    def add(self, position, size, oid, begin, end, data):
        if not self._pieces:
            self.begin = position
        self._headers[position] = len(self._pieces)
        self._pieces += (
            HEADER.pack(b'a', size, oid, begin, end or z64, 0, len(data)),
            data, oid)

    def end(self, position, tid):
        """Let a current record end at this tid, unless it begins at the same;
        return the tid at which it begins."""
        number = self._headers[position]
        header = self._pieces[number]
        begin = header[_BEGIN:END]
        if begin != tid:
            self._pieces[number] = (
                header[:END] + tid + header[END + len(tid):])
        return begin

    def joined(self):
        return b''.join(self._pieces)

    def clear(self):
        self._pieces.clear()
        self._headers.clear()
