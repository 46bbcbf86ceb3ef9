"""What clients wrote that each say what they had read, held against the file.

A *holder* has a token, new with each writing, the tokens of all holders that
its writer had read, and a reference to a *thing*; it knows the token of the
thing, too.  So it shows in the file

- whether what a transaction read was ever there together: each token has a
  time from when it was written until it was overwritten, and those of all that
  was read must have one in common;
- whether it leads to the thing that it was made with, or to somebody else's.
"""

import copy
import io
import math

import ZODB.serialize
from persistent import Persistent
from ZODB.broken import find_global


class Thing(Persistent):

    def __init__(self, token):
        self.token = token


class Holder(Persistent):

    def __init__(self, name, thing):
        self.name = name
        self.write('first ' + name, {}, thing, thing.token)

    def write(self, token, read, thing, thing_token):
        self.token = token
        self.read = read
        self.thing = thing
        self.thing_token = thing_token

    def leads_elsewhere(self):
        return self.thing.token != self.thing_token


class History:
    """Of the transactions of a file, in their order."""

    def __init__(self):
        self.problems = []
        self.last_tid = None
        self._count = 0
        self._current = {}  # name of a holder -> token
        self._written = {}  # token of a holder -> count
        self._overwritten = {}
        self._things = {}   # oid -> token

    def copy(self):
        other = copy.copy(self)
        for name, value in vars(self).items():
            setattr(other, name, copy.copy(value))
        return other

    def add_all(self, storage):
        """What came after what is known already; how many there were."""
        before = self._count
        for transaction in storage.iterator(self.last_tid):
            if transaction.tid != self.last_tid:
                self._add(transaction)
        return self._count - before

    def _add(self, transaction):
        self._count += 1
        self.last_tid = transaction.tid
        states = [(record.oid, *_state(record.data))
                  for record in transaction]
        for oid, class_, state in states:
            if class_ is Thing:
                if oid in self._things:
                    self._problem('two things have one oid')
                self._things[oid] = state['token']
        for oid, class_, state in states:
            if class_ is Holder:
                self._add_holder(**state)

    def _add_holder(self, name, token, read, thing, thing_token):
        if not self._has(read):
            self._problem('it has read what was lost')
        elif not self.shows(read):
            self._problem('it has read what was never there together')
        if read.get(name) != self._current.get(name):
            self._problem('it has overwritten what it had not read')
        if self._things.get(thing) != thing_token:
            self._problem('its reference leads elsewhere')
        if name in self._current:
            self._overwritten[self._current[name]] = self._count
        self._current[name] = token
        self._written[token] = self._count

    def shows(self, read):
        """Were these tokens there together, at some time?"""
        return self._has(read) and (
            max(map(self._written.get, read.values()), default=-1)
            < min((self._overwritten.get(each, math.inf)
                   for each in read.values()), default=0))

    def _has(self, read):
        return self._written.keys() >= set(read.values())

    def _problem(self, words):
        self.problems.append(f'{words} ({self.last_tid.hex()})')


def _state(data):
    """Class and state; an oid in the place of each reference."""
    unpickler = ZODB.serialize.PersistentUnpickler(
        lambda module, name: find_global(module, name),
        lambda reference: reference[0], io.BytesIO(data))
    class_ = unpickler.load()
    return class_ if isinstance(class_, type) else class_[0], unpickler.load()
