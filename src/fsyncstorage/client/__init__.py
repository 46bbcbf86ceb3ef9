"""The ZEO client: a drop-in for ZEO's own, with faster cold reads.

::

    FsyncClient (storage)  -- the storage that ZODB sees
      |-- Doom (doom)           transactions that saw what the server lost
      |-- Cache (cache)         objects on disk, ZEO's format, and what is
      |     Pending (pending)   asked for: which answers may be kept
      |-- Link (link)           the connection to the server
      |     Outgoing (outgoing) what a transaction says, until its vote
      |     Reader (reader)     loads and prefetches on
      |       Channels (channels)   connections for reading only
      |     PlainPrefetches (plainprefetch)   prefetches without these
      `-- BlobCache (blobs/)    blob files, and how much they may take
"""
