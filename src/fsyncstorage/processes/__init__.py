"""Processes of our own: they do long work, and give way to their parent.

Such a process is a new program, not a fork: a fork would have the locks, the
event loop and the sockets of its parent, and the lock of the file.

- starting      the process, as its parent sees it
- parent        its parent, as the process sees it
- version       which code a process runs
- priority      gives way to others
- reading       reads that leave the page cache alone
- rate          so many bytes a second
"""
