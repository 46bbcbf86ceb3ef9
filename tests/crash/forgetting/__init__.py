"""A file system on a disk that forgets what was not flushed.

`plugin` is the disk, for nbdkit; `machine` makes a block device of it, with a
file system that is mounted, can be unplugged, and comes back.
"""
