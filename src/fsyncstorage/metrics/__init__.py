"""What operators and their programs can see: metrics, probes, a live page.

- address    a configured address, and whether other machines can reach it
- exporters  which address shows which storages of this process, and answers
- answering  HTTP with bounded cost, whatever a peer sends
- hosts      which names a request may use for an address
- probes     is the process alive, is it ready, has it started?
- shown      one storage that is shown
- reading    its figures at one moment
- backups    what a backup says of itself, in a file
- figures    the table of all figures: their names, and where they are read
- collector  these figures as metrics (it needs prometheus_client)
- page       the live page, and what each client does, as JSON
- past       the last half hour, for the pictures of the page
- verdicts   is all well?  For the page
- clients    the figures of clients, for a registry of their process

Nothing here is needed to keep data.  If something here fails, it is one line
in the log, and the storages go on without it.  Figures are counted where they
arise, in the storage and in the server, and are only read here.
docs/internals/metrics.rst has the whole story.
"""
