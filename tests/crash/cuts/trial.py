"""A server, clients that commit, and cuts between them.

    python -m tests.crash.cuts.trial CUTS

Each kind of message is cut in each of the ways of tests.server.relay: before
it, behind it, and at any byte of it.  At some messages the server or a client
is killed, or stops for a moment.  What the clients were told is held against
the file after each cut.
"""

import collections
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import threading

import ZODB
from BTrees.Length import Length
from persistent.mapping import PersistentMapping

from fsyncstorage import FsyncStorage

from ...memory import scratch_directory
from ...server.relay import WHERE
from ...server.relay import Cut
from ...server.relay import Relays
from ...support import PATIENCE
from . import client
from . import server
from .outcomes import Outcomes

CLIENTS = 2
# Until the message of a cut comes.
TRIES = 3
# With one file; the clients and the server are new then.
CUTS = 400
# Seconds for which nothing passes, or a process stops, at most.  Nothing
# happens meanwhile, so no event can end it.
MOMENT = 0.05
# The same until what is late comes, if the client does not go on so far.
LATE = 0.2

#: How the messages of the exchange are cut, and that of connecting.
HOWS = 'reset', 'closed', 'frozen', 'late', 'answers'
COMMON = ('begin', 'store', 'vote', 'finish', 'trip', 'voted', 'done',
          'invalid', 'abort', 'aborted', 'reader up', 'reader down')
# These come behind a cut.
CONNECTING = ('greeting', 'hello', 'welcome', 'question', 'outcome',
              'hello of a reader')
# What comes of a conflict: if the server resolves them, or the clients do.
OF_A_CONFLICT = 'error', 'conflicts'
CLIENTS_RESOLVE = 0, 1
#: Whose outcome is asked for when the answer is lost.
REQUESTS = 'trip', 'finish'
#: In a message: how much of it still passes.
PLACES = lambda source: 0, lambda source: source.random(), lambda source: 1
#: What becomes of the processes, and at which messages.
STRUCK = ('server killed', 'client killed', 'server stopped',
          'client stopped')
STRUCK_AT = 'trip', 'voted', 'finish', 'done', 'question'


def words(counts):
    return ', '.join(f'{count} {what}' for what, count in sorted(
        counts.items()))


class _Process:
    """Runs a module."""

    def __init__(self, said, *command):
        self._process = subprocess.Popen(
            [sys.executable, '-m', *map(str, command)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
            env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)})
        self.line = self._process.stdout.readline
        self.signal = self._process.send_signal

    def end(self):
        """Its exit status."""
        self._process.stdin.close()
        try:
            return self._process.wait(PATIENCE)
        finally:
            self.kill()

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


class _Client:
    """One process after the other, behind one relay."""

    def __init__(self, trial, number):
        self._trial = trial
        self._names = (f'{number}-{count}' for count in itertools.count())
        self.relay = trial.relays.open(trial.address, self._strike)
        #: What was done to the server or the client, by the relay.
        self.struck = None
        self.start()

    def start(self):
        self.process = self._trial.start(
            client.__name__, self.relay.port, next(self._names),
            self._trial.log)
        if not self.process.line():
            raise AssertionError(f'a client has failed {self._trial.said()}')

    def _strike(self, how):
        self.struck = how
        who, what = how.split()
        process = self._trial.server if who == 'server' else self.process
        process.signal(
            signal.SIGKILL if what == 'killed' else signal.SIGSTOP)

    def make(self, cuts):
        """Return when they were made."""
        relays = self._trial.relays
        for _ in range(TRIES):
            relays.do(self.relay.arm, cuts)
            messages = None
            while not self.relay.over.wait(PATIENCE):
                if self.relay.messages == messages:
                    raise AssertionError(
                        f'nothing goes on: {cuts}\n{self._trial.threads()}')
                messages = self.relay.messages
            if not self.relay.is_given_up:
                break
        struck, self.struck = self.struck, None
        if struck == 'server killed':
            self._trial.server_again()
        elif struck == 'client killed':
            self.process.kill()
            self.start()
        elif struck is not None:
            self._trial.wait_a_moment()
            (self._trial.server if struck == 'server stopped'
             else self.process).signal(signal.SIGCONT)
        if cuts[-1].how == 'late':
            self.relay.came.wait(LATE)
        if cuts[-1].how in ('late', 'frozen'):
            self._trial.wait_a_moment()
            relays.do(self.relay.settle)


class Trial:
    """So many cuts, with one file."""

    def __init__(self, seed=0):
        self._clients_resolve = CLIENTS_RESOLVE[
            seed // 2 % len(CLIENTS_RESOLVE)]
        #: Of messages that are cut.
        self.kinds = (
            *COMMON, *CONNECTING, OF_A_CONFLICT[self._clients_resolve])
        # A slow disk shows more of what comes while a commit is finished.
        self._seconds_a_sync = 0.005 * (seed % 2)
        self._seed = seed
        self.source = random.Random(seed)
        self.made = collections.Counter()
        #: To the question what became of a commit.
        self.answers = collections.Counter()
        self.outcomes = collections.Counter()
        self.problems = []

    def run(self, cuts=CUTS):
        with contextlib.ExitStack() as stack:
            self._stack = stack
            self._directory = stack.enter_context(scratch_directory())
            self._data = os.path.join(self._directory, 'Data.fs')
            self.log = os.path.join(self._directory, 'log')
            self._said, self._server_said = (
                stack.enter_context(
                    open(os.path.join(self._directory, name), 'w+'))
                for name in ('said', 'server said'))
            self.relays = stack.enter_context(Relays())
            _populate(self._data)
            self._run(cuts)
        return self

    def start(self, *command, said=None):
        process = _Process(said or self._said, *command)
        self._stack.callback(process.kill)
        return process

    def start_server(self):
        self.server = self.start(
            server.__name__, self._data, self._seconds_a_sync,
            self._clients_resolve, said=self._server_said)
        self.address = '127.0.0.1', int(self.server.line())

    def server_again(self):
        """It was killed."""
        self.server.kill()
        self._outcomes.look()
        self.start_server()
        for each in self._clients:
            each.relay.server_address = self.address
        self._outcomes.look_again()

    def threads(self):
        """Where those of all processes are."""
        for each in self.server, *[one.process for one in self._clients]:
            each.signal(signal.SIGUSR1)
        threading.Event().wait(1)  # until they have written it
        return self.said()

    def said(self):
        return _content(self._said) + _content(self._server_said)

    def wait_a_moment(self):
        threading.Event().wait(self.source.random() * MOMENT)

    def _run(self, cuts):
        self._outcomes = self._stack.enter_context(
            contextlib.closing(Outcomes(self._data, self.log)))
        self.start_server()
        self._clients = [_Client(self, number) for number in range(CLIENTS)]
        for each in self._plans():
            self.source.choice(self._clients).make(each)
            self._outcomes.look()
            if self._count() >= cuts or self._outcomes.problems:
                break
        self._end()

    def _count(self):
        return sum(sum(each.relay.made.values()) for each in self._clients)

    def _end(self):
        for each in self._clients:
            if each.process.end():
                self.problems.append('a client has failed')
            self.relays.do(each.relay.reset)
            self.made += each.relay.made
            self.answers += each.relay.answers
        if self.server.end():
            self.problems.append('the server has failed')
        said = _content(self._server_said)
        if 'Traceback' in said:
            self.problems.append(f'the server said {said}')
        self._outcomes.look_at_the_end()
        self.problems += self._outcomes.problems
        self.outcomes = self._outcomes.counts()

    # What is cut

    def _plans(self):
        """Of each kind of message, each way and each place; again and again.

        A plan is cuts that are made one behind the other.  In a turn, each
        kind is cut once; in as many turns as there are ways, in each of them.
        """
        for turn in itertools.count():
            deck = [(kind, HOWS[(turn + number) % len(HOWS)])
                    for number, kind in enumerate(self.kinds)]
            if turn % len(HOWS) == 0:
                # Each at another message the next time: a process takes as
                # long to begin as twenty cuts take.
                deck += [(STRUCK_AT[(turn // len(HOWS) + self._seed + number)
                                    % len(STRUCK_AT)], how)
                         for number, how in enumerate(STRUCK)]
            plans = [self._plan(kind, how, (turn + number) % len(PLACES))
                     for number, (kind, how) in enumerate(deck)]
            self.source.shuffle(plans)
            yield from plans

    def _plan(self, kind, how, place):
        cut = self._cut(kind, how, place)
        if kind not in CONNECTING:
            return [cut]
        return [self._cut(self.source.choice(REQUESTS), 'reset',
                          self.source.randrange(len(PLACES))), cut]

    def _cut(self, kind, how, place):
        return Cut(
            kind, how, PLACES[place](self.source),
            how in ('late', 'answers') or self.source.random() < 0.5,
            self.source.choice(('begin', 'welcome', 'question', 'outcome')))


def _content(file):
    file.seek(0)
    return file.read()


def _populate(path):
    with contextlib.closing(ZODB.DB(FsyncStorage(path))) as db:
        with db.transaction() as connection:
            connection.root().update(
                resolving=Length(), plain=PersistentMapping(value=0))


class Trials:
    """One after the other, until there are so many cuts."""

    def __init__(self):
        self.kinds = set()
        self.made = collections.Counter()
        #: To the question what became of a commit.
        self.answers = collections.Counter()
        self.outcomes = collections.Counter()
        self.problems = []

    def run(self, cuts):
        """Until there is a problem."""
        for seed in itertools.count():
            left = cuts - self.made.total()
            if left <= 0 or self.problems:
                return self
            trial = Trial(seed).run(min(left, CUTS))
            self.kinds.update(trial.kinds)
            self.made += trial.made
            self.answers += trial.answers
            self.outcomes += trial.outcomes
            self.problems += trial.problems

    def __str__(self):
        """The places of each kind of message: before, in it, and behind it."""
        kinds, hows = {}, collections.Counter()
        for (kind, place, how), count in self.made.items():
            kinds.setdefault(kind, collections.Counter())[place] += count
            hows[how] += count
        places = (f'{kind} {"/".join(str(counts[each]) for each in WHERE)}'
                  for kind, counts in sorted(kinds.items()))
        return '\n'.join('  ' + each for each in (
            words({'cuts': self.made.total()}), words(hows),
            ', '.join(places), words(self.answers), words(self.outcomes)))


def main(cuts):
    trials = Trials().run(int(cuts))
    print(trials)
    for problem in trials.problems:
        print(problem)
    return bool(trials.problems)


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
