"""The command `fsync-time zeo`: `writing`, `reading`, `light` are timed."""
