"""The ZEO client: a drop-in for ZEO's own, with faster cold reads.

::

    Connection (connection)   decides which commits are made in one trip
    FsyncClient (storage)  -- the storage that ZODB sees
      |-- OneTrip (onetrip)     votes that also finish
      |-- Doom (doom)           transactions that saw what the server lost
      |-- Cache (cache)         objects on disk, in ZEO's format
      |     Pending (pending)   loads without an answer: which may be kept
      |     Gathered (gathered) records that are not in its file yet
      |     revisions           ends records that are in its file
      |-- Link (link)           the connection to the server
      |     ZeoConnection (zeoconnection)     ZEO's own, which verifies
      |       ZeoProtocol (zeoprotocol)       to one of its addresses
      |       Addresses (addresses)   when each may be tried again
      |         Liveness (liveness)   gives up a server that says nothing;
      |                         sockets asks the system about a connection
      |     Stream (stream)     the commit channel, opened by opening; watch
      |                         wakes its background reader, and a thread
      |                         waits for an Answer (answer)
      |       Committing (committing)     a transaction on it
      |       Finishing (finishing)       what its finish changes here
      |       outcome             what became of it, if its answer was lost
      |       TLSConnection (tlsconnection)   read and written concurrently
      |     Introduction (introduction)   tells the server about the client
      |     Outgoing (outgoing) a transaction's messages on ZEO's connection
      |     Reader (reader)     loads, and prefetches (prefetch), on
      |       Channels (channels)   connections for reading only (readchannel)
      |     PlainPrefetches (plainprefetch)   prefetches without channels
      |     LocalReads (local)  loads from the file of a server on this machine
      |       LocalBlobs (localblobs)   blobs of such a server
      |     LocalCounts (localcounts)   how many these were, and how fast
      |     Process (process)   a fork must not use any of this
      |-- Packs (packs)         what our server tells of packs
      `-- BlobCache (blobs/)    blob files, and how much they may take; they
                                come from the server by blobfetch

Its configuration sections are in `sections`.
"""
