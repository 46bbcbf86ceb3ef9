"""Beyond one machine: a log that a majority keeps, and the nodes that use it.

Each room imports only those below it:

- etcd/         an engine that keeps the log, and its section
- roles/        which node writes: the one that has the lease
- beginning/    how a log and its nodes begin
- leading/      a node that writes: to the log and to its disk, in parallel
- following/    a node that does not write: it brings the log into its file
- files/        what a node keeps beside its data file
- log/          how the log is asked, and which answers are believed
- history/      what the log says, and what follows from it

The modules with a thread of their own are `replicator`, `keeping` and
`tidying` in a node that writes, `standby` in one that follows, and
`role`, `holding`, `primary`, `presence` and `probing`.  Only `etcd` uses
sockets.  A storage is given a `Replicator` (commit.replica).
docs/internals/quorum.rst has the design, and says what is not built.
"""
