"""The data of the objects that are stored: the same in each run."""

import io
import pickle
import random

from ZODB.tests.MinPO import MinPO
from ZODB.utils import p64


def commit_id_of(tid):
    return b'shall be' + tid


def content_of(tid, oid, size):
    return random.Random(tid + oid).randbytes(size)


def record_of(content, references=()):
    """Of an object that has this, and refers to others."""
    return record(MinPO, ([p64(other) for other in references], content))


def record(of_class, state):
    return pickle.dumps(of_class, 3) + pickle.dumps(state, 3)


def references_of(data):
    """The oids that a record refers to."""
    file = io.BytesIO(data)
    pickle.load(file)
    state = pickle.load(file)
    return state[0] if state else []
