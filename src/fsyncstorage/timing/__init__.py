"""The timing driver behind the console script `fsync-time`.

Each command is a package, and `commandline` in it is its command line:

- disk          what one sync costs here, and what follows
- commits       what a durable commit costs
- zeo, blobs    what commits, reads and blobs take over ZEO
- reports       results as one page; the pictures

Whatever only campaigns need (other servers, files over HTTP, slow networks) is
in the scripts of `perf/`, on top of this package.

What the commands share, from the outside in; a package imports only what
stands below it:

- options       what a user may ask for: arguments, contestants
- servers       ZEO servers, with their clients, that a sample starts
- running       how samples are taken: processes, rounds, the machine
- results       what is made of samples: tables, documents, words

`main` is the command line, with the errors and exit codes.

Commands do not import each other but for `commits.committing`, which `disk`
measures too.

A new measurement is a package like `commits`, with work like
`commits.committing`, and a question; the rest does not change.
"""
