"""All that runs: members, nodes, clients, and what is known of them."""

import contextlib
import os
import random
import subprocess
import time

from .clients import Client
from .members import Members
from .network import Network
from .nodes import Node
from .notes import Read

#: Seconds: of the lease, and until something must have come back.
LEASE, PATIENCE = 3, 90
#: Until a stock client that does not answer is started again.
STOCK = 15
#: MB of the log.
LIMIT = 32


class Violation(Exception):
    """What was promised does not hold."""


class Taken(Exception):
    """This fault is not possible now."""


class World:

    def __init__(self, directory, seed, account):
        self.directory = directory
        self.say = account.say
        self._claims = set()
        self.network = Network(
            ['m0', 'm1', 'm2', 'a', 'b', 'ours1', 'ours2', 'stock1'])
        hosts = self.network.hosts
        # Without its own checks etcd starts, and serves, what is damaged.
        with_checks = random.Random(seed).random() < 0.5
        self.say('etcd has its own checks for damage '
                 + ('on' if with_checks else 'off'))
        self.members = Members(
            [hosts[f'm{number}'] for number in range(3)], directory,
            with_checks)
        addresses = [each.client for each in self.members]
        self.nodes = [
            Node(hosts['a'], directory, addresses, LEASE, LIMIT),
            Node(hosts['b'], directory, addresses[1:] + addresses[:1], LEASE,
                 LIMIT)]
        servers = [each.address for each in self.nodes]
        os.mkdir(os.path.join(directory, 'notes'))
        with open(os.path.join(directory, 'newest'), 'wb') as file:
            file.write(bytes(8))
        self.clients = [
            Client(hosts[name], directory, kind, servers, seed)
            for name, kind in (('ours1', 'ours'), ('ours2', 'ours'),
                               ('stock1', 'stock'))]
        self.kinds = {
            worker: each.kind for each in self.clients
            for worker in each.workers}
        self.notes = Read(os.path.join(directory, 'notes'))

    # The beginning

    def start(self):
        for each in self.members:
            each.start()
        self.wait(self.members_are_sound, 'the members are there')
        first, second = self.nodes
        first.begin()
        first.start()
        self.wait(lambda: first.leads, 'the first node leads')
        second.join(first)
        second.start()
        self.wait(lambda: second.follows, 'the second node follows')
        self.clients[0].make(list(self.kinds))
        for each in self.clients:
            each.start()
        for each in self.clients:
            self.wait(lambda each=each: each.answer == 'going',
                      f'{each.name} begins')

    # Who may be touched

    @contextlib.contextmanager
    def claimed(self, *names):
        """While nobody else touches them."""
        self.need(not self._claims.intersection(names))
        self._claims.update(names)
        try:
            yield
        finally:
            self._claims.difference_update(names)

    @staticmethod
    def need(condition):
        if not condition:
            raise Taken

    def of(self, found):
        self.need(found is not None)
        return found

    @property
    def log_names(self):
        return {each.name for each in self.members}

    @property
    def node_names(self):
        return {each.name for each in self.nodes}

    @property
    def all_of_the_log(self):
        return [*self.log_names,
                *(f'links of {each}' for each in self.log_names)]

    # Roles

    def primary(self):
        """The node that leads; Taken: nobody does."""
        return self.of(next(
            (each for each in self.nodes if each.leads), None))

    def standby(self):
        """The other one, if it runs."""
        primary = self.primary()
        other = next(each for each in self.nodes if each is not primary)
        self.need(other.runs and not other.is_frozen)
        return other

    def members_are_sound(self):
        return all(each.is_sound for each in self.members)

    def roles_are_clear(self):
        """One leads, and the other has all that the log has."""
        leading = [each.leads for each in self.nodes]
        return (leading.count(True) == 1
                and self.nodes[leading.index(False)].follows)

    # What an operator does

    def look_after(self):
        """Start what has ended by itself, and say so."""
        for node in self.nodes:
            words = node.look_at_its_end()
            if words is not None:
                self.say(f'{node.name} has ended by itself, {words}')
                time.sleep(0.5)
                node.start()
        for client in self.clients:
            if client.is_to_run and not client.runs:
                raise Violation(
                    f'{client.name} has ended: {client.last_words()}')

    def heal(self):
        """Undo all faults."""
        self.network.heal()
        for each in [*self.members, *self.nodes, *self.clients]:
            if each.runs and each.is_frozen:
                each.thaw()
        for node in self.nodes:
            node.make_room()
        for each in [*self.members, *self.nodes]:
            if not each.runs:
                each.start()
        for member in self.members:
            if member.is_damaged:
                for _ in self.members.replace(member):
                    time.sleep(0.2)
        self.wait(self.members_are_sound, 'all members are sound')
        self.members.disarm()
        self.wait(self.roles_are_clear,
                  'one node leads, and the other follows')

    def wait(self, condition, what, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Violation(
                    f'not within {seconds} s: {what}; '
                    + '; '.join(f'{each.name}: {each.ready()}'
                                for each in self.nodes))
            self.look_after()
            time.sleep(0.2)

    # The load

    def hold(self):
        for each in self.clients:
            each.tell('hold')
        for each in self.clients:
            deadline = time.monotonic() + PATIENCE
            while each.answer != 'held':
                if (each.kind == 'stock'
                        and time.monotonic() > deadline - PATIENCE + STOCK):
                    # It need not notice that its server has gone.
                    self.say(f'{each.name} hangs, and is started again')
                    each.kill()
                    each.start()
                    each.tell('hold')
                    deadline = time.monotonic() + PATIENCE
                if time.monotonic() > deadline:
                    raise Violation(
                        f'{each.name} does not come to an end: '
                        f'{each.last_words()}')
                self.look_after()
                time.sleep(0.1)

    def go(self):
        for each in self.clients:
            each.tell('go')

    # The end

    def end(self):
        """The clients, the node that follows, and then the one that leads."""
        for each in self.clients:
            each.tell('end')
        for each in self.clients:
            self._has_ended(each)
            if each.answer != 'ended':
                raise Violation(
                    f'threads of {each.name} are left: {each.answer}')
        for each in sorted(self.nodes, key=lambda each: each.leads):
            each.terminate()
            self._has_ended(each)

    @staticmethod
    def _has_ended(program):
        try:
            status = program.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            status = None
        if status != 0:
            raise Violation(f'{program.name} ends with the status {status}: '
                            f'{program.last_words()}')

    def close(self):
        for each in [*self.clients, *self.nodes, *self.members]:
            each.kill()
        for node in self.nodes:
            node.unmount()
        self.network.close()
