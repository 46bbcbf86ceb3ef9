"""The command `fsync-time blobs`.

Who takes part is in `sites`; what is timed, in `work`.
"""
