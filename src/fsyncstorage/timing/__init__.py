"""The timing driver behind the console script `fsync-time`.

- main          the command line, with the errors and exit codes
- disk          what one sync costs here, and what follows
- commits       what a durable commit costs
- zeo, blobs    what commits, reads and blobs take over ZEO
- report        results as one page
- arguments     the options that the commands share
- contestants   what can be measured without a server, and storages of the
                user's own

Below them, `running` takes samples, and `results` shows what is computed from
them.

What only campaigns need (other servers, slow networks) is in the scripts of
`perf/`, which build on this package.  A new measurement is a module like
`commits`, and a question in `results.questions`; nothing else changes.
"""
