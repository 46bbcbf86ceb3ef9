"""The command line of `fsync-top`.

Exit codes: 0 done, 2 it cannot be done, 130 interrupted (a picture that is
drawn again and again ends in this way), 141 nobody reads the output.  Errors
are one line.

Any program may answer at the address that is asked.  So at most `MOST_BYTES`
are received, and an answer is used within `_understood` alone.  Texts may have
any characters: the code that prints them must escape them.
"""

import argparse
import contextlib
import http.client
import json
import sys
import time
from collections.abc import Iterator
from collections.abc import Sequence

from ..check import terminal
from ..check.terminal import CannotRun
from ..check.terminal import CommandParser
from ..check.terminal import exit_code
from ..check.terminal import needing_rich
from ..check.terminal import printable
from ..metrics import address

with needing_rich('fsync-top'):
    from rich.console import Console
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from . import table
    from .table import Answer

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

# An answer of a server is up to a second old, so more often is useless.
SHORTEST, LONGEST = 1.0, 3600.0

#: Seconds until there must be a connection, or more of the answer.
PATIENCE = 10.0
# An answer of a server has 1,000 clients, of 5,000 bytes at most: each of the
# 100 characters of a label, and of a version, may take 12 in JSON.
MOST_BYTES = 8 << 20

NOT_OURS = ('what answers there is not the address of metrics of an'
            ' fsyncstorage that can tell of its clients')


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser()
    code: int = exit_code(run, arguments.parse_args(argv), arguments.prog)
    return code


def parser() -> argparse.ArgumentParser:
    made = CommandParser(
        prog='fsync-top', description=DESCRIPTION, epilog=EPILOG)
    made.add_argument(
        'address', metavar='ADDRESS', type=_address,
        help='where the metrics of the server are')
    made.add_argument(
        '--json', action='store_true',
        help='write what is known of each client as JSON to standard output,'
             ' once')
    made.add_argument(
        '--interval', metavar='S', type=_interval, default=2.0,
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
    if not SHORTEST <= seconds <= LONGEST:
        raise argparse.ArgumentTypeError(
            f'{seconds:g} s are not {SHORTEST:.0f} to {LONGEST:.0f} s')
    return seconds


def run(options: argparse.Namespace) -> int:
    answer = ask(options.address)
    with terminal.output():
        console = Console(highlight=False)
        if options.json:
            json.dump({'storages': answer}, sys.stdout, indent=1)
            print()
        elif console.is_terminal and not console.is_dumb_terminal:
            _draw_again_and_again(console, answer, options)
        else:
            time.sleep(options.interval)
            now = ask(options.address)
            with terminal.without_blanks(console):
                console.print(_picture(now, answer, options, console.width))
    return 0


def _draw_again_and_again(console: Console, answer: Answer,
                          options: argparse.Namespace) -> None:
    """A server may be away while it is restarted: until it answers, the
    reason is shown."""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        shown: Group | Text = _picture(answer, {}, options, *console.size)
        while True:
            live.update(shown, refresh=True)
            time.sleep(options.interval)
            try:
                before, answer = answer, ask(options.address)
                shown = _picture(answer, before, options, *console.size)
            except CannotRun as error:
                shown = Text(printable(str(error)), style='bold red')


def _picture(now: Answer, before: Answer, options: argparse.Namespace,
             width: int, height: int | None = None) -> Group:
    with _understood(options.address):
        return table.picture(
            address.shown(options.address), table.rows(now, before),
            sum(storage['left_out'] for storage in now.values()), width,
            height)


def ask(at: tuple[str, int]) -> Answer:
    """CannotRun if there is no answer."""
    try:
        status, body = _received(at)
    except TimeoutError:
        why = f'no answer within {PATIENCE:.0f} s'
    except ConnectionResetError:
        why = ('it has closed the connection. Is it the address of <metrics>,'
               ' and not that of ZEO?')
    except http.client.HTTPException:
        why = NOT_OURS
    except (OSError, UnicodeError) as error:  # (UnicodeError: no valid name)
        why = getattr(error, 'strerror', None) or str(error)
    else:
        if status == 200 and len(body) <= MOST_BYTES:
            with _understood(at):
                storages: Answer = json.loads(body)['storages']
            return storages
        why = NOT_OURS if status != 421 else (
            'the server was asked by a name that it does not answer to (421):'
            ' ask by an address in numbers, or as it has the name')
    raise CannotRun(f'{address.shown(at)}: {why}')


@contextlib.contextmanager
def _understood(at: tuple[str, int]) -> Iterator[None]:
    """CannotRun, if what is done with an answer shows that it is not ours."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError,
            TypeError, ValueError):
        raise CannotRun(f'{address.shown(at)}: {NOT_OURS}') from None


def _received(at: tuple[str, int]) -> tuple[int, bytes]:
    """The status, and what follows: a little more than MOST_BYTES at most."""
    with contextlib.closing(http.client.HTTPConnection(
            *at, timeout=PATIENCE)) as connection:
        connection.connect()
        # In numbers: a server may have to refuse other names (metrics.hosts).
        host = address.shown(connection.sock.getpeername()[:2])
        connection.request('GET', '/clients', headers={'Host': host})
        with connection.getresponse() as response:
            return response.status, response.read(MOST_BYTES + 1)
