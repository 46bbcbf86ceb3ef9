"""The ZEO client: a drop-in for ZEO's own, with faster cold reads.

::

    FsyncClient (storage)  -- the storage that ZODB sees
      |-- Doom (doom)           transactions that saw what the server lost
      |-- Cache (cache)         objects on disk, in ZEO's format
      |     Pending (pending)   loads without an answer: which may be kept
      |-- Link (link)           the connection to the server
      |     Stream (stream)     the commit channel, opened by opening
      |       Committing (committing)     a transaction on it
      |       TLSConnection (tlsconnection)   read and written at once
      |     Outgoing (outgoing) a transaction's messages on ZEO's connection
      |     Reader (reader)     loads and prefetches on
      |       Channels (channels)   connections for reading only
      |     PlainPrefetches (plainprefetch)   prefetches without channels
      |     LocalReads (local)  loads from the file of a server on this machine
      `-- BlobCache (blobs/)    blob files, and how much they may take
"""
