"""`fsync-top`: which clients of a server do what, and what they hold.

- commandline   options, what is done, exit codes
- asking        one answer of a server
- rows          what clients did between two answers, the busiest first
- table         rows on a terminal of any width
"""

from .commandline import main

__all__ = ['main']
