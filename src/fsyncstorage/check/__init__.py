"""`fsync-check`: reads a Data.fs, and reports what is damaged.

- commandline   options, the report in words, exit codes
- salvage       copies what is sound into a new file
- verify        what is checked
- laterseals    what later seals prove to have been durable
- findings      what was found
"""

from .commandline import main

__all__ = ['main']
