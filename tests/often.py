"""How often a test tries what it tries again and again.

Crash images, random histories, mutations, cuts: any number of them shows the
same promise, and more of them find what is rarer.  A test of the default run
has two numbers: a smaller one, which is tried after each change, and the one
of a run of all tests (``make test-all``).
"""

import sys


def often(by_default, with_all):
    """The number for this run."""
    return with_all if '--all' in sys.argv else by_default
