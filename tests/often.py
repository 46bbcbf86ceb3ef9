"""How often a test tries what it tries again and again.

Crash images, random histories, mutations, cuts: any number of them shows the
same promise, and more of them find what is rarer.  Such a test has a number
for `make test` and one for `make test-all`; what `make check` runs of it, too,
has a third one, which takes a second or two.
"""

import argparse


def level():
    """Of this run: 1 is `make check`, 2 `make test`, 3 `make test-all`."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument('-a', '--at-level', type=int, default=1)
    parser.add_argument('--all', action='store_true')
    options, _ = parser.parse_known_args()
    return 3 if options.all else min(options.at_level, 3)


LEVEL = level()


def often(at_test, at_all, at_check=None):
    """The number for this run."""
    if LEVEL == 3:
        return at_all
    if LEVEL == 1 and at_check is not None:
        return at_check
    return at_test
