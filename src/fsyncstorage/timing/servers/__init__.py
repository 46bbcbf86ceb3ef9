"""Servers that a measurement starts, each in a process of its own.

`served` is a server as the driver sees it.  What runs in its process is
`launcher`.  The ZEO servers and clients that can take part are in `zeo`.
"""
