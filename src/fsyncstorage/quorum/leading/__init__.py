"""A node that writes: its commits go to the log and to the disk at once.

- writer        the one that offers records, and learns what became of them
- replicator    the sync of the policy `quorum`
- keeping       saves the state, in a thread
- agreeing      its packs: what it tells the others
- staging       puts the blobs of a vote into the log
- held          what the log has of some records: bytes, and blobs they name
- earlier       reads what it had before this writer led
- tidying       removes staged blobs that no record names, in a thread
- trimming      removes from the log what all nodes have kept
- loglimit      how large the log is, and what waits when that is too much
"""
