"""A client that comes and goes, reads what belongs together, and commits.

Run as a process: which client (a name in CLIENTS), the address of a server, a
directory for its cache, a number, how many transactions, and how many of them
between coming and going.

Pairs of objects have values whose sum is zero in every transaction.  A client
that sees another sum was shown a stale object, from its cache or by the
server: it says so and ends with the status VIOLATION.
"""

import logging
import random
import sys

import ZODB
from persistent.mapping import PersistentMapping
from ZEO.ClientStorage import ClientStorage
from ZODB.POSException import ConflictError

from fsyncstorage.client.storage import FsyncClient

from ..resource import BEHIND
from ..resource import Resource

PAIRS = 3
VIOLATION = 3


class Violation(Exception):
    """What was read does not belong together."""


CLIENTS = {'stock': ClientStorage, 'ours': FsyncClient,
           'two trips': FsyncClient}


def populate(connection):
    """The pairs, as the first transaction of all."""
    for name in range(PAIRS):
        connection.root()[name] = (
            PersistentMapping(value=0), PersistentMapping(value=0))
    connection.transaction_manager.commit()


def run(client, address, directory, number, transactions, stay):
    """Commit so many transactions; each visit with a cache, old or new."""
    choice = random.Random(number)
    while transactions > 0:
        # With a name, the cache is a file that the next visit finds again.
        name = choice.choice([None, f'cache{number}'])
        connection = ZODB.connection(
            CLIENTS[client](address, client=name, var=directory))
        try:
            visit(connection, choice, min(transactions, stay),
                  client == 'two trips')
        finally:
            connection.close()
        transactions -= stay


def visit(connection, choice, transactions, two_trips):
    while transactions:
        # What is read comes from the cache of the client, or its server.
        connection.cacheMinimize()
        try:
            change(connection, choice, two_trips)
        except ConflictError:
            connection.transaction_manager.abort()
        else:
            transactions -= 1


def change(connection, choice, two_trips):
    """Read all pairs, change one."""
    under_way = connection.transaction_manager.begin()
    if two_trips:
        under_way.join(Resource(BEHIND))
    pairs = [connection.root()[name] for name in range(PAIRS)]
    choice.shuffle(pairs)
    if choice.random() < 0.3:
        connection.prefetch(pairs[-1], pairs[0])
    for pair in pairs:
        values = [each['value'] for each in pair]
        if sum(values):
            raise Violation(values, [each._p_serial.hex() for each in pair])
    for each, by in zip(pairs[0], (1, -1)):
        each['value'] += by
    connection.transaction_manager.commit()


def main(client, host, port, directory, *numbers):
    logging.basicConfig(level=logging.ERROR)
    try:
        run(client, (host, int(port)), directory, *map(int, numbers))
    except Violation as violation:
        print('violation:', violation, file=sys.stderr)
        sys.exit(VIOLATION)


if __name__ == '__main__':
    main(*sys.argv[1:])
