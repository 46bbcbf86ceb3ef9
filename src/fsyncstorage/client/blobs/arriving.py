"""Blobs that are read while they arrive.

A short blob is fetched by who asks for it: a thread would take longer to
begin.  The rest of a longer one is downloaded by a thread of its own, to its
end, even if nobody wants it any more: whoever wants it next finds it there.
It is a download as any other, and those who load the blob meanwhile wait for
it; the file enters the cache when it is complete.

An ArrivingFile reads what there is of the part, and waits for more.  It
promises that its end is that of the blob: if the rest does not come, it raises
what the download did.  Who reads does not hold up the download, nor others.

Any process can read a part.  One that waits for the download of another has
nobody to wake it: it looks again, at first after a millisecond, then less and
less often, at last each 20.  When nobody is at it any more, it goes on with
the download itself.
"""

import contextlib
import copy
import io
import os
import sys
import threading
import time

from . import filelocks
from .download import Download

# Bytes of a blob that is all there before anybody reads it.
SHORT = 1 << 20

# Seconds between two looks at what another process downloads.
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.02


class Arrivals:
    """The downloads of this process that others may read from."""

    def __init__(self, directory, books, transfer):
        """`transfer(oid, serial, download)` fetches what that wants."""
        self.directory = directory
        self.books = books
        self._transfer = transfer
        self._lock = threading.Lock()
        self._under_way = {}  # name -> Arrival
        self._closed = False
        filelocks.in_child(self)

    def forked(self):
        # The threads are those of the parent, and so is what they download.
        self._lock = threading.Lock()
        self._under_way = {}

    def close(self):
        """Return when the threads have ended.  Their downloads fail by now."""
        with self._lock:
            self._closed = True
            threads = [arrival.thread for arrival in self._under_way.values()]
        for thread in filter(None, threads):
            thread.join()

    def open(self, oid, serial, name, open_complete):
        """An ArrivingFile, when its size is known.

        If the blob is there by then, what `open_complete(oid, serial)`
        returns.
        """
        file = ArrivingFile(
            self, (oid, serial, name), self.directory.keep(name))
        with contextlib.ExitStack() as unless_it_arrives:
            # Not before the other is open: it may be that of a guest.
            unless_it_arrives.callback(file.close)
            if not file.wait_for_size():
                return open_complete(oid, serial)
            unless_it_arrives.pop_all()
            return file

    def bring(self, oid, serial, name):
        """The Arrival of a blob, which is begun if nobody is at it.

        None: it is somebody else, or there is nothing to do.
        """
        with self._lock:
            self._refuse_if_closed()
            if name in self._under_way:
                return self._under_way[name]
            part = self.directory.claim_missing(name, wait=False)
            if part is None:
                return None
            arrival = self._under_way[name] = Arrival()
        self._begin(arrival, part, oid, serial, name)
        return arrival

    def _refuse_if_closed(self):
        if self._closed:
            raise ValueError(f'{self.directory.path} is closed')

    def _begin(self, arrival, part, oid, serial, name):
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._ending(arrival, part, name))
            download = _Told(arrival, part, name, self.directory, self.books)
            stack.enter_context(download.given_up_if_it_fails())
            download.most = SHORT
            self._transfer(oid, serial, download)
            if download.complete:
                with download.finished():
                    return
            del download.most
            rest = stack.pop_all()
        try:
            self._start_thread(arrival, rest, download, oid, serial, name)
        except BaseException:
            rest.__exit__(*sys.exc_info())
            raise

    def _start_thread(self, arrival, *args):
        with self._lock:
            self._refuse_if_closed()
            thread = threading.Thread(
                target=self._go_on, args=args, daemon=True,
                name=f'{self.directory.path}: {args[-1]}')
            thread.start()
            arrival.thread = thread

    def _go_on(self, rest, download, oid, serial, name):
        # An error is for those who read.
        with contextlib.suppress(BaseException), rest:
            self._transfer(oid, serial, download)
            # It may be gone already: whoever reads it has it open.
            with download.finished(), contextlib.suppress(FileNotFoundError):
                self.directory.use(name)

    @contextlib.contextmanager
    def _ending(self, arrival, part, name):
        error = None
        try:
            with part:
                yield
        except Exception as raised:
            # What interrupts this thread is not for those who wait: they look
            # again, and one of them goes on.
            error = raised
            raise
        finally:
            try:
                if arrival.is_of_a_guest:
                    # Nobody may be left who reads it.
                    self.books.dismiss_guests()
            finally:
                with self._lock:
                    del self._under_way[name]
                arrival.end(error)


class Arrival:
    """How far a download is."""

    #: That does the rest of a long one.
    thread = None
    download = None
    size = None
    over = False

    def __init__(self):
        self.there = 0  # bytes
        self._error = None
        self._changed = threading.Condition()

    @property
    def is_of_a_guest(self):
        return self.download is not None and self.download.guest

    def tell(self, size, there):
        with self._changed:
            self.size = size
            self.there = there
            self._changed.notify_all()

    def end(self, error):
        with self._changed:
            self.over = True
            self._error = error
            self._changed.notify_all()

    def wait(self, enough):
        """Until `enough(arrival)`, or its end; raise what it ended with."""
        with self._changed:
            self._changed.wait_for(lambda: self.over or enough(self))
        if self._error is not None:
            # Each thread adds to its own where it was raised.
            raise copy.copy(self._error) from self._error


class _Told(Download):
    """A download that tells how far it is."""

    def __init__(self, arrival, *args):
        super().__init__(*args)
        self._arrival = arrival
        arrival.download = self
        self._tell()

    def _tell(self):
        self._arrival.tell(self._size, self.offset)

    def expect(self, size):
        super().expect(size)
        self._tell()

    def write(self, piece):
        super().write(piece)
        self._tell()

    def restart(self):
        super().restart()
        self._tell()


class ArrivingFile(io.RawIOBase):
    """The blob as a file, as it comes.  It has no descriptor to send from."""

    #: Of the whole blob.
    size = None

    # The download of this process that it waits for; None: that of another.
    _arrival = None
    # Whether what it reads is, as far as is known.
    _is_a_guest = True
    # What is read.
    _source = None

    def __init__(self, arrivals, blob, kept):
        """`kept` is a lock that is closed with the file."""
        self._arrivals = arrivals
        self._blob = blob
        self._name = blob[-1]
        self._kept = kept
        self._position = 0
        self._pause = FIRST_PAUSE
        filelocks.in_child(self)

    def forked(self):
        self._arrival = None

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=os.SEEK_SET):
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position,
                os.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer):
        """As `read`, which takes half the memory."""
        buffer = memoryview(buffer).cast('B')
        data = self.read(len(buffer))
        buffer[:len(data)] = data
        return len(data)

    def read(self, size=-1):
        """What there is, up to as much; nothing: that was all of the blob."""
        if size is None or size < 0:
            return self.readall()
        if self.closed:
            raise ValueError('the file is closed')
        size = min(size, max(0, self.size - self._position))
        if not size:
            return b''
        while not (data := self._read(size)):
            # If somebody removed the file, its end is waited for.
            self._wait(lambda arrival: (
                self._source and arrival.there > self._position))
        self._pause = FIRST_PAUSE
        self._position += len(data)
        return data

    def _read(self, size):
        if self._source is None:
            self._source = self._arrivals.directory.arriving(self._name)
            if self._source is None:
                return b''
        source = self._source.fileno()
        data = os.pread(source, size, self._position)
        if not data and not os.fstat(source).st_nlink:
            # That download was given up; there may be another one.
            self._leave_source()
        return data

    def _leave_source(self):
        source, self._source = self._source, None
        if source is not None:
            source.close()

    # Waiting

    def wait_for_size(self):
        """Return False when the blob is there: it was short, perhaps."""
        while not self._arrivals.directory.has(self._name):
            arrival = self._at_it()
            if arrival is None:
                self.size = self._arrivals.books.final_size(self._name)
            elif not arrival.over:
                self.size = arrival.size
            if _is_long(self.size):
                return True
            self._wait(lambda arrival: _is_long(arrival.size))
        return False

    def _at_it(self):
        if self._arrival is None:
            self._arrival = self._arrivals.bring(*self._blob)
        return self._arrival

    def _wait(self, enough):
        arrival = self._at_it()
        if arrival is not None:
            arrival.wait(enough)
            self._is_a_guest = arrival.is_of_a_guest
            if arrival.over:
                self._arrival = None
        else:
            time.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def close(self):
        if not self.closed:
            super().close()
            self._leave_source()
            self._kept.close()
            if self._is_a_guest:
                self._arrivals.books.dismiss_guests()


def _is_long(size):
    return size is not None and size > SHORT
