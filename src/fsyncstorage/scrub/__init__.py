"""A scrub: all of a file is read from the disk in turn, and verified.

Damage is found while there is still a backup that lacks it, also in what
nobody reads.

- scrubbing     what the storage's process does: it starts, hears and notes
- notes         what a scrub knows, also after a restart
- child         the process that reads, as it sees itself
- verifying     one pass over the file
- fromdisk      reads past the page cache, and around what cannot be read
"""
