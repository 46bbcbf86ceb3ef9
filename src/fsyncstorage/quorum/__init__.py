"""Beyond one machine: a log that a majority keeps, and what is made of it.

- record        what one record of the log says, and its bytes
- fold          what a node makes of the next record: it applies it, skips it
                or refuses it
- batch         how the bytes of commits become records
- state         what a node keeps on its disk, and which file that is about
- log           what is asked of the engine that keeps the log
- members       what its members say, and what is believed of it
- etcd/         such an engine
- writer        the one that offers records, and learns what became of them
- reading       reads what follows, and says what to do about a refusal
- evidence      whether the log has lost what this node has acknowledged
- agreeing      the packs of a node that writes: what it tells the others
- replicator    the sync of the policy `quorum`: the log and the disk, at once
- trimming      removes from the log what all nodes have kept
- loglimit      how large the log is, and what waits when that is too much
- staged        what the log has of a blob: its id, chunks and checksum
- staging       puts the blobs of a vote into the log
- named         which staged blobs the records of a log name
- tidying       removes those that none names, in a thread
- newblobs      lists of objects whose blobs are about to get their files
- fetching      brings the blobs of a batch into a blob directory
- outage        the log does not answer: when to try again, what is said
- keeping       saves the state, in a thread
- indexing      the index of a file that grows by what the log has
- repacking     the pack of a node that follows
- fates         what became of commits, for clients that ask the next server
- following     brings records into a data file
- contents      the bytes that the log has for a file
- unfinished    of two files, which one a start has
- rejoin        the start of a node: its file becomes what the log says
- standby       the thread of a node that does not write
- bootstrap     a log begins with a file
- copying       a node is made of the files of another one
- role          a node, from its start until it leads and has a storage
- holding       keeps the lease, in a thread
- takeover      a node that has the lease becomes the one that writes
- primary       the replica of a node that has the lease, and its retreat
- stepdown      a planned change: who asks for it, and what is done then

`keeping`, `replicator`, `trimming`, `tidying`, `standby`, `role`, `holding`,
`primary` and `stepdown` have a thread each.  `state`, `following`, `rejoin`,
`bootstrap`, `newblobs` and `fetching` have files, and only `etcd` uses
sockets.  A storage is given a `Replicator` (commit.replica).
docs/internals/quorum.rst has the design of the whole, and says what is not
built.
"""
