"""Running the suites of ZODB over our storage.

The suites make their storage by calling ``ZODB.FileStorage.FileStorage``; for
the length of a test, `substituted` puts ours in its place, with a policy.

ZODB 6 names its tests ``test...``; some mixins, and all of ZEO, still name
them ``check...``.  `Loader` finds both: with one prefix, hundreds are skipped
in silence.
"""

import doctest
import os
import unittest
from unittest import mock

import ZODB.FileStorage
import ZODB.tests.util

from fsyncstorage import FsyncStorage
from fsyncstorage.storage import opening

# It would read the levels of upstream; each test gets one of ours.
del ZODB.tests.util.TestCase.level

#: It packs again and again, each time by another process.
LONG = 'testPackAfterUndoManyTimes',

POLICIES = 'none', 'interval', 'group-commit', 'per-commit', 'two-sync'


def with_policy(policy):
    """FsyncStorage as a class that is called like stock's FileStorage."""

    class Storage(FsyncStorage):

        def __init__(self, *args, **kw):
            super().__init__(*args, durability=policy, **kw)

        # Two tests save and read the index, and ask how often it was saved.

        @property
        def _saved(self):
            return self.journal.checkpoints.written

        def _save_index(self):
            self.journal.checkpoints.write_or_warn()

        def _restore_index(self):
            known, _ = opening.trusted_index(self._file)
            return tuple(known) if known.index else None

    return Storage


def substituted(policy, make=None):
    return mock.patch.object(
        ZODB.FileStorage, 'FileStorage', make or with_policy(policy))


class Loader(unittest.TestLoader):

    def getTestCaseNames(self, case):
        names = []
        for self.testMethodPrefix in 'test', 'check':
            names += super().getTestCaseNames(case)
        return names


def at_level(level, suite):
    """Tests of upstream at a level of ours, a number or a function of a test:
    none of them is at level 1, and those at 3 repeat others, or are long."""
    for test in flattened(suite):
        name = test._testMethodName
        is_long = name in LONG or hasattr(getattr(test, name), 'level')
        ours = level(test) if callable(level) else level
        test.level = 3 if is_long else ours
    return suite


def after_check(suite):
    """What was given no level is at 2."""
    return at_level(lambda test: getattr(test, 'level', 2), suite)


def over(policy, case, make=None, level=2, **attributes):
    """The tests of an upstream class, over our storage; `make` is called for
    one, if that takes more than the policy."""

    class Substituted(case):

        def setUp(self):
            patch = substituted(policy, make)
            patch.start()
            self.addCleanup(patch.stop)
            super().setUp()

    Substituted.__name__ = Substituted.__qualname__ = (
        f'{case.__name__} {policy}')
    Substituted.__module__ = case.__module__
    for name, value in attributes.items():
        setattr(Substituted, name, value)
    return at_level(level, Loader().loadTestsFromTestCase(Substituted))


def without(suite, excluded):
    """The suite without the tests whose id ends with one of these names.

    A name that excludes nothing is an error: the list must stay true.
    """
    kept = unittest.TestSuite()
    unused = set(excluded)
    for test in flattened(suite):
        name = test.id().rpartition('.')[2]
        if name in excluded:
            unused.discard(name)
        else:
            kept.addTest(test)
    assert not unused, f'nothing upstream is named {unused}'
    return kept


def flattened(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flattened(test)
        else:
            yield test


def without_the_powers_of_root(suite):
    """For root, files that are not writable are: let `open` refuse them."""

    def open_as_a_user(path, mode='r', *args, **kw):
        if ('r' not in mode and os.path.exists(path)
                and not os.stat(path).st_mode & 0o222):
            raise PermissionError(path)
        return open(path, mode, *args, **kw)

    if os.geteuid() == 0:
        for test in flattened(suite):
            if isinstance(test, doctest.DocTestCase):
                test._dt_test.globs['open'] = open_as_a_user
    return suite
