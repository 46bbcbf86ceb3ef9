"""Stock ZEO over our storage: server and clients unchanged.

At level 2 is what is for every storage, and a little more; the rest is
what test_conformance_filestorage has without ZEO.
"""

import ZEO.tests.testZEO

from . import zeosuites
from . import zodbsuites

CONFIG = """
%import fsyncstorage
<fsyncstorage 1>
  path Data.fs
  durability {policy}
</fsyncstorage>
"""


def generic_tests(policy):

    class Tests(ZEO.tests.testZEO.FullGenericTests):

        def getConfig(self):
            return CONFIG.format(policy=policy)

    Tests.__name__ = Tests.__qualname__ = f'FullGenericTests {policy}'
    return zodbsuites.at_level(
        zeosuites.what_each_storage_has(Tests),
        zodbsuites.Loader().loadTestsFromTestCase(Tests))


def test_suite():
    return zeosuites.lasting(generic_tests('group-commit'))
