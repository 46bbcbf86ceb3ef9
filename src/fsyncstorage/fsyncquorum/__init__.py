"""`fsync-quorum`: what an operator sees of `durability quorum`, and does.

- commandline   options, what is done, exit codes
- configured    which log, and which file: of a zeo.conf, or of options
- looking       what the log, its members and the nodes say
- words         that, for people
- changing      promote, step-down, forget

All but `bootstrap` works from any machine that reaches the members of the log.
"""

from .commandline import main

__all__ = ['main']
