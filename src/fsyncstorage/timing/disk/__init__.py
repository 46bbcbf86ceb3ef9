"""The command `fsync-time disk`: `probing` is timed, `verdict` explains."""
