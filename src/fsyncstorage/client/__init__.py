"""The client of a ZEO server: a drop-in for ZEO's own.

::

    opening                 decides: ours, or stock's with our cache of blobs
    Connection (connection) decides which commits are made in one trip
    FsyncClient (storage)   the storage that ZODB sees
      |-- Commits (commits)     what commits call; transactions in one trip
      |     Transaction (commit)    one transaction: vote, finish, outcome
      |-- Doom (doom)           transactions that saw what the server lost
      |-- Failover (failover)   the thread that finds a server, and keeps
      |     Stream (stream)     one connection, used by several threads; watch
      |                         wakes its background reader
      |       TLSConnection (tlsconnection)   read and written concurrently
      |-- Reads (reads)         loads, prefetches and blobs from one server
      |     Readers (readers)   connections for reading alone
      |     Prefetches (prefetching)  requests in one write, replies read later
      |-- Cache (cache)         objects on disk, and what may be kept there
      |     Pending (pending)   loads without an answer
      |     CacheFile (cachefile)     the file: a log, a ring of segments
      |-- BlobCache (blobs/)    blob files, and how much they may take
      |-- LocalReads (local)    loads from the file of a server on this machine
      |     LocalCounts (localcounts)     how many these were, and how fast
      |-- Transactions (iterating)    iterators at the server
      |-- Packs (packs)         what our server tells of packs
      |-- raised                the exception that a server's error stands for
      `-- Process (process)     a fork must not use any of this
    StockClient (stock)     the client of a stock server

Its configuration sections are in `sections`, and what their values may be in
`options`.  `zope` opens a site's <zeoclient> as ours.
"""
