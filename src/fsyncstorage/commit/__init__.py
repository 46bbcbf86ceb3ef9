"""How a transaction is committed.

- locks     which transaction holds which objects, and who is next
"""
