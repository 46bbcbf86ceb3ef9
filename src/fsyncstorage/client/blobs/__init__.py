"""The blob cache of a client: files that many processes share.

- blobcache         what the client calls
- arriving          blobs that are read before all of them is there
- download          one blob on its way into the cache
- guests            files that are open, and not in the books
- books             which blobs are there, and how much they may take
- ledger            where the books are kept, for all processes
- cachedirectory    the directory: names, parts, leases
- filelocks         locks on files, among processes

How it comes from the server is not known here.
"""
