"""The command `fsync-time disk`.

What is timed is `probing`; `tables` shows it, and `verdict` has what it means.
"""
