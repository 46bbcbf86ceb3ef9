"""How a transaction is committed.

- locks     which transaction holds which objects, and who is next
- turns     waiting for them, in threads
- reserve   room on the disk for what is voted
- blobs     blob files that are durable before their transaction counts
- spare     descriptors that are kept for syncs
- pipeline  the states of commits: appended, durable, published
- policies  when a commit is acknowledged, and the settings
- sequencer appended, durable, published, told: in this order
- exposure  since when something is appended and not durable
- flusher   the thread for what has no thread of its own
- histogram how long syncs and commits took
"""
