"""The one protocol between client and server, and its client, in work.

Only the tests import it.  When all of it is there, it takes the place of
client/ and wire/, and of what serves our clients in server/.

The frames, for both ends, without sockets, threads or clocks:

frames        made, and taken apart; how the two ends find each other
order         what a client has asked for, and which reply may come
values        plain values of any type within a frame

The client:

opening       decides: ours, or stock's with our cache of blobs
FsyncClient (storage)  the storage that ZODB sees
  Commits (commits)    what commits call of it; transactions in one trip
    Transaction (commit)   one transaction: its vote, its finish, its outcome
  Failover (failover)  the thread that finds a server, and keeps a stream
    Stream (stream)    one connection, used by several threads
  Reads (reads)        loads, prefetches and blobs from one server
    Readers (readers)  connections for reading alone
    Prefetches (prefetching)   requests in one write, replies read when wanted
  Cache (cache)        objects on disk, and what may be kept there
    Pending (pending)  loads without an answer
    CacheFile (cachefile)  the file: a log, which is a ring of segments
  SharedDirectory (blobs)  blobs in a directory that the server has, too
  Transactions (iterating) iterators at the server
  raised               the exception that an error of the server stands for
StockClient (stock)    the client of a stock server

The server:

OurSession (serving)   a stream: one client of ours, with all that it asks
Reader (reading)       a connection for loads and blobs
attach                 both, beside what the server serves today
"""
