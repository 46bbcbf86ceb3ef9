"""The driver fsync-time.  Nowhere is asserted how fast anything was."""
