"""The command line of `fsync-top`.

Exit codes: 0 done, 2 it cannot be done, 130 interrupted (a picture that is
drawn again and again ends in this way), 141 nobody reads the output.  Errors
are one line.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.console import Group
from rich.live import Live
from rich.text import Text

from ..check import terminal
from ..check.terminal import CannotRun
from ..check.terminal import CommandParser
from ..check.terminal import exit_code
from ..check.terminal import printable
from ..metrics import address
from . import asking
from . import table
from .asking import Client
from .rows import Answer
from .rows import Row
from .rows import rows

DESCRIPTION = """\
Show which clients of an fsync-runzeo do what: how much they ask for, and which
objects they hold, or wait for.  The busiest come first; above them, those that
have held objects for a second or more, and those that have waited that long.
"""

EPILOG = """\
ADDRESS is that of the metrics, as in <metrics> or --metrics of fsync-runzeo:
PORT (of this machine), HOST:PORT or [HOST]:PORT.  ZEO's own address tells
nothing of other clients.

Columns: req/s, messages of the client; in/s and out/s, bytes from it and to
it; com/s and conf/s, commits, and commits that met a conflict; objects, those
that its transactions hold, or how long one has waited.

On a terminal, the picture is redrawn until Ctrl-C, even if the server goes
away and comes back; elsewhere it is printed once.

exit status: 0 done; 2 it could not be done; 130 interrupted.
"""

DEFAULT_INTERVAL = 2.0
# An answer of a server is up to a second old, so more often is useless.
SHORTEST, LONGEST = 1.0, 3600.0


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser()
    options = arguments.parse_args(argv)
    code: int = exit_code(run, options, arguments.prog)
    return code


def parser() -> argparse.ArgumentParser:
    made = CommandParser(
        prog='fsync-top', description=DESCRIPTION, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        'address', metavar='ADDRESS', type=_address,
        help='where the metrics of the server are')
    made.add_argument(
        '--json', action='store_true',
        help='write what is known of each client as JSON to standard output,'
             ' once')
    made.add_argument(
        '--interval', metavar='S', type=_interval, default=DEFAULT_INTERVAL,
        help='seconds between two pictures (2)')
    return made


def _address(text: str) -> tuple[str, int]:
    """The address; it may also be written as in the log of the server."""
    try:
        return address.checked(
            text.removeprefix('http://').removesuffix('/'))
    except ValueError as error:
        raise argparse.ArgumentTypeError(printable(str(error))) from None


def _interval(text: str) -> float:
    seconds = float(text)  # or ValueError
    if not (math.isfinite(seconds) and SHORTEST <= seconds <= LONGEST):
        raise argparse.ArgumentTypeError(
            f'{printable(text)} is not a number of seconds from'
            f' {SHORTEST:.0f} to {LONGEST:.0f}')
    return seconds


def run(options: argparse.Namespace) -> int:
    answer = asking.ask(options.address)
    with terminal.output():
        if options.json:
            _print_json(answer)
        elif (console := Console(highlight=False)).is_terminal and not (
                console.is_dumb_terminal):
            _draw_again_and_again(console, answer, options)
        else:
            time.sleep(options.interval)
            now = asking.ask(options.address)
            table.print_once(
                address.shown(options.address), rows(now, answer),
                _left_out(now))
    return 0


def _print_json(answer: Answer) -> None:
    json.dump({'storages': {
        name: {'clients': [_as_table(client) for client in storage.clients],
               'left_out': storage.left_out}
        for name, storage in answer.items()}}, sys.stdout, indent=1)
    print()


def _as_table(client: Client) -> dict[str, Any]:
    return {**client._asdict(), 'transactions': [
        each._asdict() for each in client.transactions]}


def _draw_again_and_again(console: Console, answer: Answer,
                          options: argparse.Namespace) -> None:
    with Live(console=console, screen=True, auto_refresh=False) as live:
        before: Answer = {}
        while True:
            found = rows(answer, before)
            live.update(_picture(console, found, answer, options),
                        refresh=True)
            before, answer = answer, _next(live, options)


def _next(live: Live, options: argparse.Namespace) -> Answer:
    """The next answer, as soon as there is one.

    A server may be away while it is restarted.  Until it answers, the reason
    is shown.
    """
    while True:
        time.sleep(options.interval)
        try:
            return asking.ask(options.address)
        except CannotRun as error:
            live.update(Text(printable(str(error)), style='bold red'),
                        refresh=True)


def _picture(console: Console, found: list[Row], answer: Answer,
             options: argparse.Namespace) -> Group:
    return table.picture(
        address.shown(options.address), found, _left_out(answer),
        *console.size)


def _left_out(answer: Answer) -> int:
    return sum(storage.left_out for storage in answer.values())


if __name__ == '__main__':
    sys.exit(main())
