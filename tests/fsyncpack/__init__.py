"""Of `fsync-pack`."""
