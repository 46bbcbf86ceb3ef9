"""Blobs that are read while they arrive.

A short blob is fetched by the thread that asks for it, which is faster than
starting another thread.  The rest of a longer blob is downloaded by a separate
thread, to its end, even if no reader is left.  It is a download like any
other.  One thread at a time is responsible for finishing it or giving it up:
the thread that asked, or the other one as soon as it has taken this over.

An ArrivingFile reads the bytes that are in the part, and waits for more.  It
promises that its end is that of the blob: if the rest does not arrive, it
raises the error of the download.  Readers delay neither the download nor each
other.

Any process can read a part.  A process that waits for another's download is
not woken, but polls.  When that download is given up, it continues the
download itself.
"""

import contextlib
import copy
import io
import os
import threading
import time

from ... import forks
from .download import Download

# A blob up to this size is fetched whole before it is read.
SHORT = 1 << 20

# Seconds between two polls of what another process downloads.
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.02

# Seconds after which a thread that waits looks again, unwoken.
LOOK_AGAIN = 1


class Arrivals:
    """The downloads of this process that others may read from."""

    def __init__(self, directory, books, transfer):
        """`transfer(oid, serial, download)` fetches what `download` wants."""
        self.directory = directory
        self.books = books
        self._transfer = transfer
        self._lock = threading.Lock()
        self._under_way = {}  # name -> Arrival
        self._closed = False
        forks.in_child(self)

    def forked(self):
        # Threads and downloads belong to the parent.
        self._lock = threading.Lock()
        self._under_way = {}

    def close(self):
        """Wait until the threads end: by now their downloads must fail."""
        with self._lock:
            self._closed = True
            threads = [arrival.thread for arrival in self._under_way.values()]
        for thread in filter(None, threads):
            if thread.is_alive():  # else it is over, or was never started
                thread.join()

    def open(self, oid, serial, name, open_complete):
        """Return an ArrivingFile, as soon as its size is known.

        If the blob is complete by then, return `open_complete(oid, serial)`.
        """
        file = ArrivingFile(
            self, (oid, serial, name), self.directory.keep(name))
        with contextlib.ExitStack() as unless_it_arrives:
            # Closed last: until then its lock keeps the blob if it is a guest.
            unless_it_arrives.callback(file.close)
            if not file.wait_for_size():
                return open_complete(oid, serial)
            unless_it_arrives.pop_all()
            return file

    def bring(self, oid, serial, name):
        """The Arrival of a blob in this process, begun if need be.

        None: another process downloads it, or the blob is there.
        """
        arrival = Arrival()
        try:
            with contextlib.ExitStack() as stack:
                # First: so each arrival that is registered gets its end.
                stack.enter_context(self._ending(arrival, name))
                with self._lock:
                    self._refuse_if_closed()
                    other = self._under_way.get(name)
                    if other is not None and not other.over:
                        return other
                    part = self.directory.claim_missing(name, wait=False)
                    if part is None:
                        return None
                    self._under_way[name] = arrival
                stack.enter_context(part)
                self._begin(stack, arrival, part, oid, serial, name)
        except BaseException:
            # Once more, in case an interrupt came in the middle of it.  (If
            # the other thread goes on with the download, readers treat it as
            # that of another process.)
            arrival.end(None)
            raise
        return arrival

    def _refuse_if_closed(self):
        if self._closed:
            raise ValueError(f'{self.directory.path} is closed')

    def _begin(self, stack, arrival, part, oid, serial, name):
        download = Download(part, name, self.directory, self.books)
        arrival.follow(download)
        stack.enter_context(download.given_up_if_it_fails())
        download.most = SHORT
        self._transfer(oid, serial, download)
        if download.complete:
            with download.finished():
                return
        del download.most
        rest = [stack.pop_all()]
        try:
            self._start_thread(arrival, rest, download, oid, serial, name)
        except BaseException:
            with contextlib.suppress(IndexError), rest.pop():
                raise
            raise  # the thread has taken it over

    def _start_thread(self, arrival, *args):
        with self._lock:
            self._refuse_if_closed()
            thread = threading.Thread(
                target=self._go_on, args=args, daemon=True,
                name=f'{self.directory.path}: {args[-1]}')
            arrival.thread = thread
            thread.start()

    def _go_on(self, rest, download, oid, serial, name):
        # Readers raise the error (`_ending`).  If there is nothing to pop, the
        # thread that asked was interrupted, and has taken the download back.
        with contextlib.suppress(BaseException), rest.pop():
            self._transfer(oid, serial, download)
            # The file may be gone already, while readers have it open.
            with download.finished(), contextlib.suppress(FileNotFoundError):
                self.directory.use(name)

    @contextlib.contextmanager
    def _ending(self, arrival, name):
        error = None
        try:
            yield
        except Exception as raised:
            # Not a BaseException, which concerns only this thread: after it,
            # waiting readers look again, and one of them continues.
            error = raised
            raise
        finally:
            arrival.end(error)
            try:
                if arrival.is_of_a_guest:
                    # There may be no reader left.
                    self.books.dismiss_guests()
            finally:
                self._forget(arrival, name)

    def _forget(self, arrival, name):
        with self._lock:
            if self._under_way.get(name) is arrival:
                del self._under_way[name]


class Arrival:
    """The progress of a download."""

    #: The thread that downloads the rest of a long one.
    thread = None
    download = None
    size = None
    over = False

    def __init__(self):
        self.there = 0  # bytes
        self._error = None
        # (Always `with self._lock`: a Condition's `with` is written in Python,
        # and an interrupt may come after it has locked, before the block.)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    @property
    def is_of_a_guest(self):
        return self.download is not None and self.download.guest

    def follow(self, download):
        self.download = download
        download.tell = self._tell
        self._tell(None, download.offset)

    def _tell(self, size, there):
        with self._lock:
            self.size = size
            self.there = there
            self._changed.notify_all()

    def end(self, error):
        """May be called again; the first call counts."""
        if not self.over:
            self._error = error
            # Without the lock: if an interrupt comes before all readers are
            # woken, they look again after `LOOK_AGAIN`.
            self.over = True
        with self._lock:
            self._changed.notify_all()

    def wait(self, enough):
        """Wait until `enough(arrival)`, or its end; raise its error."""
        with self._lock:
            while not (self.over or enough(self)):
                self._changed.wait(LOOK_AGAIN)
        if self._error is not None:
            # A copy for each thread: raising it adds a traceback.
            raise copy.copy(self._error) from self._error


class ArrivingFile(io.RawIOBase):
    """A blob that is read as a file while it arrives, without descriptor."""

    #: The size of the whole blob.
    size = None

    # The download of this process that it waits for; None: another process's.
    _arrival = None
    # Whether the blob is a guest, as far as is known.
    _is_a_guest = True
    # The file that is read: the part, or the complete blob.
    _source = None

    def __init__(self, arrivals, blob, kept):
        """`kept` is a lock that is closed with the file."""
        self._arrivals = arrivals
        self._blob = blob
        self._name = blob[-1]
        self._kept = kept
        self._position = 0
        self._pause = FIRST_PAUSE
        forks.in_child(self)

    def forked(self):
        self._arrival = None

    def readable(self):
        return True

    seekable = readable

    def seek(self, offset, whence=os.SEEK_SET):
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position,
                os.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer):
        """As `read`, which is better: it takes half the memory."""
        buffer = memoryview(buffer).cast('B')
        data = self.read(len(buffer))
        buffer[:len(data)] = data
        return len(data)

    def read(self, size=-1):
        """Return up to `size` of the bytes that are there; b'' at the end."""
        if size is None or size < 0:
            return self.readall()
        if self.closed:
            raise ValueError('the file is closed')
        size = min(size, max(0, self.size - self._position))
        if not size:
            return b''
        while not (data := self._read(size)):
            # If the file was removed, this waits for the end of the download.
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
            # The download was given up; there may be another one.
            self._leave_source()
        return data

    def _leave_source(self):
        source, self._source = self._source, None
        if source is not None:
            source.close()

    # Waiting

    def wait_for_size(self):
        """Return False if the blob is complete now, as a short one is."""
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
