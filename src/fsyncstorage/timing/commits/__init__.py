"""The command `fsync-time commits`.

What is timed is `committing`, and `loading` meanwhile.
"""
