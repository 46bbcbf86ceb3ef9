"""The timing driver behind the console script `fsync-time`.

Each command is a package, and `command` in it is its command line:

- disk          what one sync costs here, and what follows
- commits       what a durable commit costs
- zeo, blobs    what commits, reads and blobs take over ZEO
- files, wsgi   what a browser can be sent, and what an application answers
- reports       results as one page; the pictures

and servers has what these start besides: ZEO servers, PostgreSQL, a network.

What they share, from the outside in:

- main          the command line: commands, errors, exit codes
- arguments     options that measuring commands have in common
- session       what every measuring run does, whatever it measures
- campaign      who runs when: rounds of races between contestants
- child         one sample in a process of its own; bond: all that it starts
- interrupts    Ctrl-C, and what else asks the driver to end
- contestants   the storages that can take part, by name; custom: those of the
                user; ground: where a measurement keeps its objects in them
- crew          threads that start together; processes: clients that do;
                population: the objects that these clients read
- loops         the event loop that ZEO runs on
- pinning       the processors that servers and clients run on
- latency       the one place that changes how a storage syncs and reads
- pagecache     a data file that is on the disk alone
- machine       what the measurements were made on
- statistics, document, tables, wording, progress, history    what is made of
                samples; pyperf: the results in its format

A new measurement is a package like `commits`, with work like
`commits.committing`; the rest does not change.  A new peer over a network is a
module like `servers.relstorages`.
"""
