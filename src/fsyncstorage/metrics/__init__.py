"""What an operator's programs can see: metrics for Prometheus, and probes.

- address    an address as it is configured, and whether others can reach it
- exporters  which address shows which storages of this process
- exporter   one address: a thread of its own that answers
- answering  HTTP, within bounds: whoever asks costs no more than that
- probes     does it live, is it ready, has it started?
- pulse      does an event loop answer, and how late?
- shown      the figures of one storage at one moment
- collector  these figures as metrics (it needs prometheus_client)
- served     who does what: the clients of a storage, as JSON
- clients    the figures of clients as metrics, for a registry of their own

Nothing here is needed to keep data.  What goes wrong is one line of the log,
and the storages go on without it.  Figures are counted where they arise, in
the storage and in the server, and only read here.  docs/internals/metrics.rst
has the whole story.
"""
