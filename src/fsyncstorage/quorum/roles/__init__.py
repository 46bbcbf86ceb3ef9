"""Which node writes: the one that has the lease, as long as it has it.

- role          a node, from its start until it leads and has a storage
- holding       keeps the lease, in a thread
- probing       does the disk answer?
- presence      what a node says of itself in the log, and hears of the others
- takeover      a node that has the lease becomes the one that writes
- packs         the node that leads swaps when the others have their files
- primary       the replica of a node that has the lease, and its retreat
- stepdown      a planned change: how it is requested, and how it is done
"""
