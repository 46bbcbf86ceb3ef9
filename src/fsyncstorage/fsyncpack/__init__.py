"""`fsync-pack`: packs a Data.fs, or asks a server to pack its own.

- commandline   options, what is done, the progress, reports, exit codes
- target        the file, or the server: an open storage
"""

from .commandline import main

__all__ = ['main']
