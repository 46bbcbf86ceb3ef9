"""Beyond one machine: a log that a majority keeps, and what is made of it.

Each room imports only those below it:

- etcd/         an engine that keeps the log, and its section
- roles/        which node writes: one that has the lease
- beginning/    how a log and its nodes begin
- leading/      a node that writes: to the log and to its disk, at once
- following/    a node that does not: its file becomes what the log says
- files/        what a node keeps beside its data file
- log/          who is asked for the log, and what is believed of an answer
- history/      what the log says, and what follows from it

These have a thread each: `replicator`, `keeping`, `trimming` and `tidying` of
a node that writes, `standby` of one that follows, `role`, `holding`,
`primary` and `stepdown`.  Only `etcd` uses sockets.  A storage is given a
`Replicator` (commit.replica).  docs/internals/quorum.rst has the design of
the whole, and says what is not built.
"""
