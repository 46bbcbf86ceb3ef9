"""The same random histories for two storages, which must not differ.

    python -m tests.storage.histories 20000 --old /path/to/another/checkout

A *history* comes from a seed: which transactions are begun, what they store,
restore, delete and undo, what becomes of them, when the storage is packed,
closed and opened again, with its index or without (history).  It is played for
both storages with the same clock.  What is compared is each return value, each
error with its text, and each byte of each file (compare).

Where no other checkout is there, the other one is FileStorage itself: without
checksums both write the same Data.fs.  What FsyncStorage refuses, and
FileStorage takes, is left out then.
"""
