"""Stock ZEO over our storage: server and clients unchanged.

At level 2 are a few of its tests: test_conformance_zeo has all that is for
every storage, over our server, and test_conformance_filestorage has it without
ZEO.
"""

from . import zeosuites


def test_suite():
    return zeosuites.lasting(zeosuites.over_policy(
        [], 'group-commit', level=zeosuites.a_few))
