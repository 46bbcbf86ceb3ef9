"""How a transaction is committed.

- locks     which transaction holds which objects, and who is next
- turns     waiting for them, in threads
- reserve   room on the disk for what is voted
"""
