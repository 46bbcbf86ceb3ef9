"""Campaigns: measurements with fixed parameters, on top of `fsync-time`.

    python -m perf record NAME
    python -m perf draw NAME

from the root of a checkout.  `README.rst` says what each of them measures.

A module has one campaign, or several, like `zeo`: what takes part, in which
races, and what is claimed.  What they share:

- __main__      the command line
- campaign      a campaign: measured, recorded, drawn again
- pictures      what is drawn, with matplotlib; questions has what they answer
- claims        what is claimed of a figure, and whether it holds
- history       what others measured long ago; table2009 shows it as they did

What takes part in them, and is not in `fsyncstorage.timing`:

- peers         RelStorage over SQLite and PostgreSQL, and zodb-pgjsonb
- slowdisk      a server whose disk is slow
- contents      a large Data.fs

This package imports `fsyncstorage.timing`, which does not depend on it.
"""
