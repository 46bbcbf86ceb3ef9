"""The order of it all: faults for some minutes, then quiet, and again."""

import os
import random
import shutil
import time

from . import faults
from .account import Account
from .checking import Checking
from .nodes import DISK
from .world import Taken
from .world import Violation
from .world import World

#: Seconds of faults between two quiet points.
ROUND = 150
#: At most so many faults at a time, in turns; seconds between two of them, at
#: most, and behind one that is to be alone.
TOGETHER, BETWEEN, BEHIND = (3, 1), 12, 6
#: Seconds until a fault has to have undone itself.
LONGEST = 150
#: Seconds without any fault, before a round.
WARM = 3
#: Bytes on the disk of a node.
NEEDS_A_PACK = DISK // 4


class Run:

    def __init__(self, directory, seed):
        self._seed = seed
        self._account = Account(directory)
        self._directory = directory
        self._number = 0
        #: Faults that are under way: when it goes on, what goes on, and which.
        self._active = []
        self._rounds = 0
        self._world = self._checking = None

    def run(self, seconds):
        """Whether all was well."""
        say = self._account.say
        say(f'seed {self._seed}, {seconds} s, in {self._directory}')
        try:
            self._world = World(self._directory, self._seed, self._account)
            self._all(seconds)
            return True
        except Violation as error:
            say(f'VIOLATION, seed {self._seed}: {error}')
            self._keep()
            return False
        finally:
            print(self._account.table(), flush=True)
            if self._world is not None:
                self._world.close()
            self._account.close()

    def _all(self, seconds):
        world = self._world
        world.start()
        self._checking = checking = Checking(world, self._account)
        deadline = time.monotonic() + seconds
        while True:
            checking.begin(time.monotonic())
            self._round(min(deadline, time.monotonic() + ROUND))
            world.heal()
            world.hold()
            checking.all()
            if time.monotonic() > deadline:
                break
            self._make_room()
            world.go()
        world.end()
        checking.at_rest()

    def _round(self, deadline):
        together = TOGETHER[self._rounds % len(TOGETHER)]
        self._rounds += 1
        next_fault = time.monotonic() + WARM
        while self._active or time.monotonic() < deadline:
            now = time.monotonic()
            if self._active and together == 1:
                next_fault = max(next_fault, now + BEHIND)
            if next_fault <= now < deadline and len(self._active) < together:
                next_fault = now + self._begin()
            for entry in list(self._active):
                if entry[0] <= now:
                    self._go_on(entry)
            self._checking.listen()
            self._world.look_after()
            time.sleep(0.05)
        # What comes of the last one.
        time.sleep(WARM)

    def _make_room(self):
        """As an operator does, if no pack among faults has done so: what is
        committed fills the disk."""
        if all(shutil.disk_usage(each.disk).used < NEEDS_A_PACK
               for each in self._world.nodes):
            return
        client, deadline = self._world.clients[0], time.monotonic() + LONGEST
        client.tell('pack')
        while not client.packed:
            if time.monotonic() > deadline:
                raise Violation('a pack without faults does not end')
            time.sleep(0.05)
        self._account.say(f'pack, while all is quiet: {client.packed}')
        if client.packed != 'packed':
            raise Violation('a pack without faults has failed')

    def _begin(self):
        """The next fault; the seconds until the one behind it."""
        self._number += 1
        chosen = random.Random(f'{self._seed} {self._number}')
        wait = chosen.uniform(0, BETWEEN)
        kind, = chosen.choices(
            list(faults.WEIGHTS), list(faults.WEIGHTS.values()))
        steps = kind(self._world, chosen)
        try:
            words = next(steps)
        except Taken:
            return 0
        self._account.begins(kind.__name__, words)
        deadline = time.monotonic() + LONGEST
        self._active.append(
            (0, steps, deadline, f'{kind.__name__}, {words}'))
        return wait

    def _go_on(self, entry):
        _, steps, deadline, words = entry
        self._active.remove(entry)
        try:
            seconds = next(steps)
        except (StopIteration, Taken):
            return
        now = time.monotonic()
        if now > deadline:
            raise Violation(f'still not over: {words}')
        self._active.append((now + seconds, steps, deadline, words))

    def _keep(self):
        """What is in memory, and where all threads of the nodes are."""
        if self._world is None:
            return
        kept = os.path.join(self._directory, 'kept')
        os.makedirs(kept, exist_ok=True)
        for each in [*self._world.clients, *self._world.nodes]:
            each.show_threads()
        for each in self._world.nodes:
            each.keep(kept)
