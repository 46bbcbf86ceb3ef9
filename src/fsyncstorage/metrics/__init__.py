"""What operators and their programs can see: metrics, probes, a live page.

- address    an address as it is configured, and whether others can reach it
- exporters  which address shows which storages of this process
- exporter   one address: a thread of its own that answers
- answering  HTTP, within bounds: whoever asks costs no more than that
- hosts      by which names a request may call an address
- probes     does it live, is it ready, has it started?
- pulse      does an event loop answer, and how late?
- shown      the figures of one storage at one moment
- figures    the table of all of them: their names, and where they are read
- collector  these figures as metrics (it needs prometheus_client)
- served     who does what: the clients of a storage, as JSON
- page       the live page
- past       the last ten minutes, for its pictures
- verdicts   is it well?  For the page
- clientfigures  what there is to know of a client
- clients        this as metrics, for a registry of the client's process
- observability  and for plone.observability, where that is installed

Nothing here is needed to keep data.  What goes wrong is one line of the log,
and the storages go on without it.  Figures are counted where they arise, in
the storage and in the server, and only read here.  docs/internals/metrics.rst
has the whole story.
"""
