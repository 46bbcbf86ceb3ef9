"""The command `fsync-time commits`: `committing` and `loading` are timed."""
