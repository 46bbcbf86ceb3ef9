"""The objects that clients change: accounts, and what shows each commit.

The sum of all accounts is always the same.  Each commit adds a Mark, which no
pack removes; so each that was acknowledged can be found at any time.
"""

import persistent
from BTrees.IOBTree import IOBTree
from BTrees.OOBTree import OOBTree
from ZODB.blob import Blob

ACCOUNTS = 100
EACH = 1000
SUM = ACCOUNTS * EACH
#: Blobs of each worker, which it writes again and again.
BLOBS = 6


class Account(persistent.Persistent):

    balance = EACH


class Mark(persistent.Persistent):
    """Of one commit."""

    def __init__(self, text):
        self.text = text


class Worker(persistent.Persistent):
    """What one worker has for itself."""

    def __init__(self):
        self.marks = IOBTree()
        self.blobs = [Blob() for _ in range(BLOBS)]
        for each in self.blobs:
            with each.open('w') as file:
                file.write(b'empty')


def make(root, workers):
    root['accounts'] = [Account() for _ in range(ACCOUNTS)]
    root['workers'] = OOBTree({name: Worker() for name in workers})


def total(root):
    return sum(each.balance for each in root['accounts'])
