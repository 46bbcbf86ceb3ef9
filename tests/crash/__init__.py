"""Power cuts, kill -9, and disks that fail."""
