"""Processes of our own: they do long work, and give way to their parent.

Such a process is a new program, not a fork: a fork would have the locks, the
event loop and the sockets of its parent, and the lock of the data file.

- starting      the process, seen from its parent
- parent        the parent, seen from the process, which gives way
- reading       reads that leave the page cache alone
- rate          limits the bytes per second
"""
