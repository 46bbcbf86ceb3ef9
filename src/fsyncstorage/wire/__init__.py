"""The one protocol between our client and our server, for both ends.

- frames     messages, made and taken apart; how the two ends find each other
- order      what a client has asked for, and which reply may come
- values     plain values of any type within a frame
- handover   the few bytes that are said where a data file is handed over
- tcp        the options of a connection: no delay, and its end when the other
             machine has gone

The format, byte by byte, is in docs/internals/wire.rst.
"""
