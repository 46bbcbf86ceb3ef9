"""Servers that a measurement starts, each in a process of its own.

`served` is a server as the driver sees it.  What runs in its process is
`launcher` for ZEO servers, and `postgresql`, with `foreign` for it and others
that are not ours.  What takes part over them is in `zeo` and `relstorages`;
`remote` is the network between server and clients, `tunnel` its delay.
"""
