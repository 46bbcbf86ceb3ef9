"""The client of a WSGI application: opened by a URI."""

import contextlib
import importlib.util
import unittest

import ZODB
import zodburi

from fsyncstorage.client.storage import FsyncClient

from ..server.serving import Served

CONFIGURATION = """\
%import fsyncstorage.client
<zodb main>
  cache-size 1234
  <fsyncclient>
    server {}:{}
  </fsyncclient>
</zodb>
"""


class UriTests(Served):

    def setUp(self):
        super().setUp()
        path = self.path('zodb.conf')
        with open(path, 'w') as file:
            file.write(CONFIGURATION.format(*self.serve().addr))
        self.uri = f'zconfig://{path}#main'

    def assert_database(self, db):
        self.assertIsInstance(db.storage, FsyncClient)
        self.assertEqual(db.getCacheSize(), 1234)
        with db.transaction() as connection:
            connection.root()['here'] = True

    def test_zodburi(self):
        open_storage, options = zodburi.resolve_uri(self.uri)
        with contextlib.closing(ZODB.DB(open_storage(), **options)) as db:
            self.assert_database(db)

    @unittest.skipUnless(
        importlib.util.find_spec('pyramid_zodbconn'),
        'needs pyramid_zodbconn')
    def test_pyramid(self):
        from pyramid.config import Configurator
        from pyramid.request import Request
        from pyramid_zodbconn import get_connection

        with Configurator(settings={'zodbconn.uri': self.uri}) as config:
            config.include('pyramid_zodbconn')
        request = Request.blank('/')
        request.registry = config.registry
        connection = get_connection(request)
        connection.close()
        with contextlib.closing(connection.db()) as db:
            self.assert_database(db)
