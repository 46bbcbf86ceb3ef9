"""The blob cache of a client: files that many processes share.

- blobcache    what the client calls; guests, threads, a disk that fails
- arriving     a blob that is read while it is downloaded
- download     a download: what `fetch` writes to
- room         the total, and which blobs leave: all within one lock file
- directory    names, uses, leases, permissions; what a stock client left
- part         the files of downloads; locks on files
- shared       the other kind: a directory that is shared with the server

A blob is not there; or it has a *part*, locked by the thread that downloads
it; or it is a file with its name, which never changes and may vanish at any
time.  A *guest* finds no room: it is a part without a name of its blob, locked
by its process.  Threads and processes are the same to each other: they share
files and locks, and no memory.

Locks, in this order: that of a part; that of the total, in which other parts
are only tried; in a process, the mutex of a BlobCache, which is a leaf.  To
read a blob that is there takes none of them.

Left to the client: how to fetch a blob from the server.
"""
