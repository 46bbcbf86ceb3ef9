"""fsync-check, and files that somebody wrote to do harm."""
