"""A scrub: all of a file is read from the disk in turn, and verified.

Damage is found while there is still a backup without it, even in parts of the
file that nobody reads.

- scrubbing     the storage's part: starts the process, and notes its reports
- notes         what a scrub knows, also after a restart
- child         the process that reads: one pass over the file
- fromdisk      reads past the page cache, and around what cannot be read
"""
