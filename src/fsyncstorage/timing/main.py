"""The command line of `fsync-time`.

Exit codes: 0 all was measured, 1 a measurement failed, 2 the command line is
wrong, 130 interrupted.  Errors are one line.
"""

import sys

from fsyncstorage.check.terminal import CommandParser
from fsyncstorage.check.terminal import needing_rich

with needing_rich('fsync-time'):
    from . import blobs
    from . import commits
    from . import disk
    from . import report
    from . import zeo
    from .running import sampling

COMMANDS = (disk, commits, zeo, blobs, report)

DESCRIPTION = """\
Measure, on the machine and the disk that will carry the load, what durability
costs a ZODB storage, what a durability policy saves, and what is left of it
over ZEO.
"""


def main(argv=None):
    parser = CommandParser(
        prog='fsync-time', description=DESCRIPTION,
        epilog='fsync-time COMMAND --help explains a command.')
    commands = parser.add_subparsers(metavar='COMMAND', required=True)
    for command in COMMANDS:
        command.add_to(commands)
    options = parser.parse_args(argv)
    try:
        return options.run(options)
    except KeyboardInterrupt:
        # A command that measures something handles the interrupt itself.
        print('fsync-time: interrupted', file=sys.stderr)
        return sampling.INTERRUPTED


if __name__ == '__main__':
    sys.exit(main())
