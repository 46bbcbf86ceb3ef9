"""Campaigns: measurements with fixed parameters, on top of `fsync-time`.

    python -m perf record NAME
    python -m perf draw NAME

from the root of a checkout.  `README.rst` says what each of them measures.

A campaign is in a module that is named after its result, like `zeo_client`; it
says what takes part, in which races, and what is claimed.  Some modules have
several campaigns, like `files` and `zeo_local`.  What they share:

- __main__      the command line
- campaign      a campaign: measured, recorded, drawn again
- claims        what is claimed of a figure, and whether it holds
- history       what others measured long ago; table2009 shows it as they did

What takes part in them, and is not in `fsyncstorage.timing`:

- peers         RelStorage over SQLite, and over a PostgreSQL of its own
- network       server and clients in two networks, with a delay
- colddisk      a server whose data are on the disk alone
- contents      a large Data.fs
- pagecache     what of a file is in the memory of the machine
- web           applications, web servers, nginx, and what sends requests

This package imports `fsyncstorage.timing`, which does not depend on it.
"""
