"""A node that writes: its commits go to the log and to the disk in parallel.

- writer        offers records to the log, and learns what became of them
- replicator    the sync of the policy `quorum`
- keeping       saves the state, in a thread
- agreeing      the packs of a node that writes: what it tells the other nodes
- staging       puts the blobs of a vote into the log
- held          what the log has of some records: bytes, and blobs they name
- earlier       reads what the log had before this writer led
- tidying       removes staged blobs that no record names, in a thread
- trimming      removes from the log what all nodes have kept
- loglimit      limits the size of the log, and queues what waits for room
"""
