"""The timing driver behind the console script `fsync-time`.

From the outside in:

- main          the command line: commands, errors, exit codes
- commits       the command `commits`: its options, races and tables
- zeo           the command `zeo`: the same
- arguments     options that measuring commands share
- session       what every measuring run does, whatever it measures
- campaign      who runs when: rounds of races between contestants
- child         one sample in a process of its own; bond: all that it starts
- contestants   the storages that can take part, by name
- committing, loading    the work that is timed; crew: its threads
- servers       the ZEO servers that can take part; launcher: their processes
- light, remote the work that is timed over ZEO; zeowire: the messages of light
                clients; stockclients: processes that start together
- loops         the event loop that ZEO runs on
- latency       the one place that changes how a storage syncs
- machine       what the measurements were made on
- statistics, document, tables, zeotables, progress, history    what is made
                of samples

A new measurement is a module like `commits`, with workloads like
`committing`; the rest does not change.
"""
