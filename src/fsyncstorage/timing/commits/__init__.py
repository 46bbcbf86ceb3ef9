"""The command `fsync-time commits`: `committing` is timed."""
