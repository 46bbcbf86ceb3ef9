"""`fsync-quorum`: shows `durability quorum` to an operator, and changes it.

- commandline   options, commands, exit codes
- configured    which log, and which file: from a zeo.conf, or from options
- looking       what the log, its members and the nodes say
- memory        how much of it a member has, by its metrics
- words         the same as text
- changing      promote, step-down, forget

All but `bootstrap` works from any machine that reaches the members of the log.
"""

from .commandline import main

__all__ = ['main']
