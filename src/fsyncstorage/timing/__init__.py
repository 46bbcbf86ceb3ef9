"""The timing driver behind the console script `fsync-time`.

From the outside in:

- main          the command line: commands, errors, exit codes
- disk          the command `disk`: what it measures; disktables, verdict: what
                that means
- commits       the command `commits`: its options, races and tables
- zeo           the command `zeo`: the same
- blobs         the command `blobs`; blobsites: who takes part; blobwork: what is
                timed; blobtables
- files         the command `files`; filesites: who takes part; filesapp,
                filesnginx: programs that send; fileswork: what is timed;
                filesload: who asks; filesmemory; filestables
- wsgi          the command `wsgi`; wsgiapp: the application; wsgiservers: who
                serves it; wsgiload: who asks; wsgitables
- report        the command `report`: results as one page; page: its HTML
- arguments     options that measuring commands share
- session       what every measuring run does, whatever it measures
- campaign      who runs when: rounds of races between contestants
- child         one sample in a process of its own; bond: all that it starts
- contestants   the storages that can take part, by name; custom: those of the
                user; ground: where a measurement keeps its objects in them
- committing, loading, probing    the work that is timed; crew: its threads
- sites         the servers and clients that can take part, by name: zeosites,
                relstorages; served: a server's process, which runs launcher or
                postgresql
- writing, reading, beside, light    the work that is timed over ZEO
- processes     clients that start together; population: the objects of them;
                zeowire: the messages of light clients
- loops         the event loop that ZEO runs on
- pinning       the processors that servers and clients run on
- remote        a network between server and clients; tunnel: its delay
- latency       the one place that changes how a storage syncs and reads
- pagecache     a data file that is on the disk alone
- machine       what the measurements were made on
- statistics, document, tables, zeotables, table2009, wording, zeowording,
  progress, history    what is made of samples; pictures: what is in pictures;
                drawing: how they are drawn; pyperf: the results in its format

A new measurement is a module like `commits`, with workloads like
`committing`; the rest does not change.  A new peer over a network is a module
like `relstorages`.
"""
