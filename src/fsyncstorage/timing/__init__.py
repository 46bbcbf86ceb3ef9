"""The timing driver behind the console script `fsync-time`.

Each command is a package, and `command` in it is its command line:

- disk          what one sync costs here, and what follows
- commits       what a durable commit costs
- zeo, blobs    what commits, reads and blobs take over ZEO
- reports       results as one page; the pictures

and servers has the ZEO servers that these start.  Whatever only campaigns
need (other servers, files over HTTP, slow networks) is in the scripts of
`perf/`, on top of this package.

What they share, from the outside in:

- main          the command line: commands, errors, exit codes
- arguments     options that measuring commands have in common
- session       what every measuring run does, whatever it measures
- campaign      which sample is taken when: rounds of races between contestants
- supervisor    one sample in a process of its own, and the end of everything
                that it starts: nobody is left behind, Ctrl-C included
- crew          threads that start together; processes: clients that do
- quiet         what other processes did with the processors meanwhile
- contestants   the storages that can take part, by name; custom: those of the
                user; ground: where a measurement keeps its objects in them
- population    the objects that clients read
- loops         the event loop that ZEO runs on
- pinning       the processors that servers and clients run on
- latency       the one place that changes how a storage syncs
- machine       what the measurements were made on
- statistics, document, tables, wording, progress    what is made of samples

A module imports only what stands below it in this list; commands import all
of it, and not each other but for `commits.committing`, which `disk` uses, and
the wording of `zeo`, which `blobs` uses.

A new measurement is a package like `commits`, with work like
`commits.committing`; the rest does not change.
"""
