"""The command `fsync-time report`, and the pictures.

`pictures` says what is in a picture, `drawing` draws it, `page` is HTML.
"""
