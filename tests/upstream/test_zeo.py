"""Stock ZEO over our storage: server and clients unchanged.

At level 2 is what is for every storage, and a little more; the rest is what
test_conformance_filestorage has without ZEO.
"""

import ZEO.tests.testZEO

from . import zeosuites


def test_suite():
    return zeosuites.lasting(zeosuites.over_policy(
        [], 'group-commit', level=zeosuites.what_each_storage_has(
            ZEO.tests.testZEO.FullGenericTests)))
