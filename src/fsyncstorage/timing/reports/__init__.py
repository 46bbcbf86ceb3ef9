"""The command `fsync-time report`, and the pictures."""
