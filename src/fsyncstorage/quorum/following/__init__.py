"""A node that does not write: it brings the log into its file.

- rejoin        the start of a node
- evidence      whether the log has lost what this node has acknowledged
- follower      brings records into a data file
- indexing      the index of a file that grows by what the log has
- fetching      brings the blobs of a batch into a blob directory
- repacking     the pack of a node that follows
- spool         what the log has from a swap on, while the pack is late
- standby       the thread of a node that does not write
"""
