"""The blob cache of a client: files that many processes share.

- blobcache         what the client calls
- arriving          blobs that are read while they are downloaded
- download          one download of a blob into the cache
- guests            open files of blobs that do not fit into the cache
- books             which blobs there are, and how much they may take
- ledger            the database of the books, shared by all processes
- cachedirectory    the directory: names, parts, leases
- filelocks         locks on files, among processes

Left to the client: how to fetch a blob from the server.
"""
