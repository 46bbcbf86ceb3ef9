"""The timing driver behind the console script `fsync-time`.

Each command is a package, and `command` in it is its command line:

- disk          what one sync costs here, and what follows
- commits       what a durable commit costs
- zeo, blobs    what commits, reads and blobs take over ZEO
- reports       results as one page; the pictures

Whatever only campaigns need (other servers, files over HTTP, slow networks) is
in the scripts of `perf/`, on top of this package.

What the commands share, from the outside in; a module imports only what stands
below it:

- main          the command line: commands, errors, exit codes
- arguments     options that measuring commands have in common
- custom        storages of the user, as contestants
- session       what every measuring run does, whatever it measures
- campaign      which sample is taken when: rounds of races between contestants
- progress      the bar in the terminal
- machine       what the measurements were made on
- contestants   the storages that can take part without a server, by name
- servers       ZEO servers, with their clients, that a sample starts
- population    the objects of a measurement, and where they are kept
- crew          clients that start together, and what they timed
- supervisor    one sample in a process of its own, and the end of everything
                that it starts: nobody is left behind, Ctrl-C included
- latency       the one place that changes how a storage syncs
- loops         the event loop that ZEO runs on
- tables, questions, document, quiet, wording, statistics    what is made of
                samples; questions: what tables and pictures answer; quiet:
                what others did with the processors meanwhile

Commands do not import each other but for `commits.committing`, which `disk`
measures too.

A new measurement is a package like `commits`, with work like
`commits.committing`, and a question; the rest does not change.
"""
