"""A node that writes: its commits go to the log and to the disk in parallel.

- writer        offers records to the log, and learns what became of them
- replicator    the sync of the policy `quorum`, and the packs of such a node
- keeping       saves the state, in a thread
- staging       puts the blobs of a vote into the log
- held          what the log has of some records: bytes, and blobs they name;
                and what it had before this writer led
- trimming      removes from the log what all nodes have kept
- tidying       the thread that trims, and removes blobs that nobody needs
- loglimit      limits the size of the log, and queues what waits for room
"""
