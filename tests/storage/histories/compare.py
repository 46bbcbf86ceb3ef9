"""Two players, each a process, and what they answer to the same seeds."""

import contextlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
SOURCE = HERE.parents[2] / 'src'


class Difference(AssertionError):
    pass


class Player:

    def __init__(self, kind, directory, source=SOURCE):
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / 'player.py'), kind, directory],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, 'PYTHONPATH': str(source)})

    def begin(self, seed):
        print(seed, file=self._process.stdin, flush=True)

    def transcript(self):
        """Of what was begun; None if it came to no end."""
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@contextlib.contextmanager
def pair(old=None):
    """Players of ours and, without another checkout, of FileStorage."""
    with contextlib.ExitStack() as stack:
        def player(name, *arguments):
            kind, *others = arguments
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            made = Player(kind, os.path.join(directory, 'history'), *others)
            stack.callback(made.close)
            return made

        if old is None:
            yield player('ours', 'unsealed'), player('other', 'stock')
        else:
            source = pathlib.Path(old).resolve() / 'src'
            yield player('ours', 'ours'), player('other', 'ours', source)


def compare(seed, ours, other):
    """How many answers were the same; Difference."""
    for player in ours, other:
        player.begin(seed)
    mine, theirs = ours.transcript(), other.transcript()
    if mine is None or theirs is None:
        raise Difference(f'history {seed} came to no end')
    for number, (one, another) in enumerate(
            itertools.zip_longest(mine, theirs)):
        if one != another:
            raise Difference('\n'.join((
                f'history {seed}, behind:', *mine[max(number - 8, 0):number],
                f'-{another}', f'+{one}')))
    return len(mine)
