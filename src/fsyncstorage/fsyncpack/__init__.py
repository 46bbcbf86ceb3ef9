"""`fsync-pack`: packs a Data.fs, or asks a server to pack its own.

- commandline   options, what is done, exit codes
- target        the file, or the server: an open storage
- looking       does the work in a thread, and shows the progress
- words         reports and errors for people
"""

from .commandline import main

__all__ = ['main']
