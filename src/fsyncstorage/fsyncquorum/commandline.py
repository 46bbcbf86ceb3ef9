"""The command line of `fsync-quorum`.

Exit codes: 0 done, and all is well; 1 `status` has a warning; 2 the command
could not be done; 130 interrupted.  An error is one line.
"""

import argparse
import contextlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import zc.lockfile
from ZODB.blob import LAYOUT_MARKER
from ZODB.blob import FilesystemHelper
from ZODB.POSException import StorageError

from ..check import terminal
from ..check.terminal import CannotRun
from ..check.terminal import CommandParser
from ..check.terminal import exit_code
from ..check.terminal import opened_blobs
from ..check.terminal import printable
from ..check.terminal import progress_bar
from ..quorum.beginning import bootstrap
from ..quorum.beginning import copying
from ..quorum.etcd.section import node as checked_node
from ..quorum.history.record import node_name
from ..quorum.log.interface import Missing
from ..quorum.log.interface import Unanswered
from . import changing
from . import words
from .configured import OF_A_LOG
from .configured import Configured
from .configured import configured

DESCRIPTION = """\
Look after the nodes of a database under "durability quorum", and their log.
"""

EPILOG = """\
CONFIG is the zeo.conf of a node.  On a machine that has none, --log and --etcd
name the log, and --ca, --cert, --key, --user and --password-file are as in
<quorum>; bootstrap needs CONFIG.

exit status: 0 done; 1 status has a warning; 2 it could not be done.
"""

STAGES = {'file': 'copying the data file', 'blobs': 'copying blobs'}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser()
    options = arguments.parse_args(argv)
    options.path = options.configuration or options.log
    # Errors are printed once; without a handler, Python prints them too.
    silent = logging.NullHandler()
    logging.getLogger().addHandler(silent)
    try:
        code: int = exit_code(run, options, arguments.prog)
        return code
    finally:
        logging.getLogger().removeHandler(silent)


def parser() -> argparse.ArgumentParser:
    made = CommandParser(
        prog='fsync-quorum', description=DESCRIPTION, epilog=EPILOG)
    commands = made.add_subparsers(
        dest='command', metavar='COMMAND', required=True)

    def command(name: str, help: str) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = commands.add_parser(
            name, help=help, description=help, epilog=EPILOG)
        one.add_argument('-C', '--configuration', metavar='CONFIG',
                         help='the zeo.conf of a node')
        for key in OF_A_LOG:
            one.add_argument('--' + key.replace('_', '-'),
                             nargs='+' if key == 'etcd' else None,
                             help=argparse.SUPPRESS)
        return one

    status = command(
        'status', 'say how the log, its members and the nodes are')
    status.add_argument('--json', action='store_true',
                        help='write that as JSON to standard output')
    begun = command('bootstrap', 'make this machine a node: the first one, or'
                    ' a copy of another one')
    begun.add_argument(
        '--from', dest='source', metavar='DIRECTORY',
        help='the directory of the data file of another node, here or'
             ' mounted; it may run')
    begun.add_argument(
        '--blobs', metavar='DIRECTORY',
        help='with --from: its blob directory')
    promoted = command('promote', 'let this node lead')
    promoted.add_argument('node', metavar='NODE', type=_node)
    command('step-down', 'let another node lead in place of the one that does')
    forgotten = command('forget', 'keep nothing in the log for this node any'
                        ' more; it can come back while the log has what it'
                        ' needs and its name is free, or as a new one')
    forgotten.add_argument('node', metavar='NODE', type=_node)
    forgotten.add_argument('--yes', action='store_true', help='do not ask')
    return made


def _node(text: str) -> str:
    try:
        return checked_node(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(printable(str(error))) from None


def run(options: argparse.Namespace) -> int:
    target = configured(options)
    try:
        with contextlib.closing(target.quorum.open_log()) as log:
            found = COMMANDS[options.command](options, target, log)
    except Missing as error:
        raise CannotRun(f'{error}. bootstrap, on the first node, begins it'
                        ) from None
    except Unanswered as error:
        raise CannotRun(f'the log does not answer: {error}') from None
    except (StorageError, zc.lockfile.LockError) as error:
        raise CannotRun(str(error)) from None
    with terminal.output():
        return _show(found, options)


def _show(found: Any, options: argparse.Namespace) -> int:
    if options.command != 'status':
        print(printable(found))
        return 0
    if options.json:
        json.dump(found, sys.stdout, indent=1)
        print()
    else:
        for line in words.of_status(found):
            print(printable(line))
    return 1 if found['warnings'] else 0


# The commands: each returns what is to be printed

def status(options: argparse.Namespace, target: Configured,
           log: Any) -> dict[str, Any]:
    # It needs an extra of the package, and --help does not.
    from . import looking
    return looking.look(log, target.quorum.log)


def begin(options: argparse.Namespace, target: Configured, log: Any) -> str:
    if target.path is None:
        raise CannotRun('bootstrap needs -C and the zeo.conf of this node')
    if options.blobs and not options.source:
        raise CannotRun('--blobs goes with --from')
    _refuse_root(target.path)
    target.quorum.check_log(log, strict=True)
    name = target.quorum.node
    if options.source is None:
        identity = bootstrap.begin(target.path, log)
        return (f'{target.path} is the first node ({name}) of the log'
                f' {target.quorum.log}, {identity.hex()}')
    return _join(options, target, log, name)


def _join(options: argparse.Namespace, target: Configured, log: Any,
          name: str) -> str:
    assert target.path is not None
    source = os.path.join(options.source, os.path.basename(target.path))
    blobs = _blobs(options, target)
    with progress_bar(os.stat(source).st_size, STAGES) as tell:
        kept = copying.copied(
            source, target.path, log, node_name(name), tell, blobs)
    return (f'{target.path} is a node ({name}) of the log'
            f' {target.quorum.log}: a copy of {kept.state.end:,} bytes, as of'
            f' record {kept.state.place.sequence:,}')


def _blobs(options: argparse.Namespace, target: Configured
           ) -> tuple[FilesystemHelper, FilesystemHelper] | None:
    if target.blob_dir is None:
        if options.blobs:
            raise CannotRun('--blobs, and the storage has no blob-dir')
        return None
    if options.blobs is None:
        raise CannotRun(
            'the storage has a blob-dir: give --blobs with that of the other'
            ' node')
    if not os.path.isfile(os.path.join(options.blobs, LAYOUT_MARKER)):
        raise CannotRun(f'{options.blobs} has no {LAYOUT_MARKER}: it is no'
                        ' blob directory')
    found = opened_blobs(options.blobs)
    return found, FilesystemHelper(target.blob_dir, found.layout_name)


def _refuse_root(path: str) -> None:
    """Its files would belong to root, and a server could not open them."""
    owner = os.stat(os.path.dirname(os.path.abspath(path))).st_uid
    if os.geteuid() == 0 and owner != 0:
        raise CannotRun(
            f'the directory of {path} belongs to the user {owner}: run this as'
            ' that user, so that its server can open the files')


def promote(options: argparse.Namespace, target: Configured, log: Any) -> str:
    before = changing.promote(log, options.node)
    return (f'{options.node} leads already' if before is None else
            f'{options.node} leads; it was {before}')


def step_down(options: argparse.Namespace, target: Configured,
              log: Any) -> str:
    before, after = changing.step_down(log)
    return f'{before} has stepped down, and {after} leads'


def forget(options: argparse.Namespace, target: Configured, log: Any) -> str:
    if not options.yes and not _agreed(options.node):
        raise CannotRun('nothing was changed')
    changing.forget(log, options.node)
    return f'{options.node} is forgotten'


def _agreed(node: str) -> bool:
    if not sys.stdin or not sys.stdin.isatty():
        raise CannotRun('nobody can be asked here: give --yes')
    return input(
        f'Forget {node}? It can come back as it is only while the log has what'
        ' it needs and no other node has its name; else as a new node'
        ' (bootstrap --from). [y/N] ').strip().lower() in ('y', 'yes')


COMMANDS = {
    'status': status, 'bootstrap': begin, 'promote': promote,
    'step-down': step_down, 'forget': forget}


if __name__ == '__main__':
    sys.exit(main())
