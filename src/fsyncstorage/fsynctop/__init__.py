"""`fsync-top`: which clients of a server do what, and what they hold.

- commandline   options, one answer of a server, what is done, exit codes
- table         what clients did between two answers, the busiest first
"""

from .commandline import main

__all__ = ['main']
