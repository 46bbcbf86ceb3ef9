"""Of `fsync-top`."""
