"""The buildout of examples/zope, end to end.  It needs the package index."""

import unittest

from ..metrics.asking import metrics
from ..metrics.asking import probe
from ..support import until
from .zope_site import built
from .zope_site import restart_often
from .zopes import check_upload

UPLOAD = 20 << 20
SECONDS, RESTARTS = 60, 4


class Running:
    """The layer: it is built once, for all tests."""

    @classmethod
    def setUp(cls):
        cls._built = built()
        cls.site = cls._built.__enter__()

    @classmethod
    def tearDown(cls):
        cls._built.__exit__(None, None, None)


class Buildout(unittest.TestCase):

    level = 3
    layer = Running

    def test_a_large_file(self):
        check_upload(Running.site.zopes, UPLOAD)

    def test_the_server_is_restarted_in_mid_load(self):
        load, restarts = restart_often(Running.site, SECONDS, RESTARTS)
        print('', *restarts, load, sep='\n  ')
        for restart in restarts:
            self.assertTrue(restart.in_time, restart)

    def test_its_metrics(self):
        address = Running.site.metrics
        self.assertEqual(probe(address, '/ready')[0], 200)
        self.assertGreater(metrics(address)['fsyncstorage_commits_total',], 0)

    def test_backup_and_pack(self):
        """By the scripts that the recipes make."""
        var = Running.site.directory / 'var'
        (var / 'backup').mkdir()
        Running.site.run(
            'bin/repozo', '-B', '-r', 'var/backup', '-f', 'var/Data.fs')
        self.assertTrue(list((var / 'backup').glob('*.fs')))
        Running.site.run('bin/zeopack', '-D', '0')
        until((var / 'Data.fs.old').exists, 'a pack')
