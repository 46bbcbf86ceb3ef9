"""A pack that survives a power cut at any moment.

- packing       the storage's part: copies the rest, replaces the file
- bulk          the files of a pack; nearly all of it, in a child or here
- naming        how the new file gets the name of the old one
- agreed        what several nodes that have the same file agree on
- generation    which of two files a node has after a crash
- packedblobs   lists and removes blobs that are not needed any more
- process       the child process that packs, seen from both sides
- work          check, mark, copy; a forecast: in the child process, or here
- packs         what callers ask for: progress, a cancel, forecasts
- plan          which records are kept, for a pack and for a forecast
- counting      how long the new file would be, and what is freed by class
- copying       copies these records, and seals the copies
- output        appends to a file; keeps syncs short, and to a rate
- checksum      of the new file, block by block, while it is written
- progress      how far a pack is, and how it is cancelled
"""
