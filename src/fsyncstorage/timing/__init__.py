"""The timing driver behind the console script `fsync-time`.

Each command is a package, and `commandline` in it is its command line:

- disk          what one sync costs here, and what follows
- commits       what a durable commit costs
- zeo, blobs    what commits, reads and blobs take over ZEO
- reports       results as one page; the pictures

What only campaigns need (other servers, files over HTTP, slow networks) is in
the scripts of `perf/`, which build on this package.

What the commands share, from the top down; a package imports only those below
it:

- options       what a user may ask for: arguments, contestants
- servers       ZEO servers, with their clients, that a sample starts
- running       how samples are taken: processes, rounds, the machine
- results       what is computed from samples: tables, documents, words

`main` is the command line, with the errors and exit codes.

Commands do not import each other, with one exception: `disk` measures
`commits.committing`, too.

A new measurement is a package like `commits`, with work like
`commits.committing`, and a question in `results.questions`; nothing else
changes.
"""
