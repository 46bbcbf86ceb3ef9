"""The command `fsync-time blobs`: `work` is timed."""
