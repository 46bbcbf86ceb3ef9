"""The command `fsync-time blobs`: `work` is timed, at `sites`."""
