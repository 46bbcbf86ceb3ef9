"""A real Zope, over our storage and over our client, is used over HTTP.

Processes are killed in mid-load, and started again: what was answered with
success is there.  The long form is test_zope_buildout.
"""

import os
import pathlib
import re
import subprocess
import sys

from App.ApplicationManager import AltDatabaseManager
from ZEO.ClientStorage import ClientStorage
from ZODB.DB import DB

from fsyncstorage.client.storage import FsyncClient
from perf.ports import free_port

from ..commands import SCRIPTS
from ..commands import Commands
from ..commands import answers
from ..often import often
from ..server.serving import Served
from .zopes import EXAMPLE
from .zopes import USER
from .zopes import Load
from .zopes import Zope
from .zopes import check_upload

CHANGES = 5  # of each writer, before and after a kill
UPLOAD = 3 << 20

STORAGE = '''
<fsyncstorage{name}>
  path {directory}/Data.fs
  blob-dir {directory}/blobs
</fsyncstorage>
'''

ZEO_CONF = '''
%import fsyncstorage
<zeo>
  address {directory}/socket
</zeo>
''' + STORAGE

ZOPE_CONF = '''
%import {imported}
instancehome {directory}/{instance}
<zodb_db main>
  mount-point /
  {storage}
</zodb_db>
'''

CLIENT = '''
<fsyncclient>
  server {directory}/socket
  blob-dir {directory}/blobcache
  server-sync on
</fsyncclient>
'''


ZEOCLIENT = '''
<zeoclient>
  server {directory}/socket
  blob-dir {directory}/blobcache
</zeoclient>
'''

SHOW_STORAGE = '''
import sys
import paste.deploy
paste.deploy.loadapp('config:' + sys.argv[1], 'zope')
import Zope2
storage = Zope2.DB.storage
print(type(storage).__name__, storage.blob_dir)
Zope2.DB.close()
'''


class Site(Commands):

    def make_zope(self, name, imported, storage):
        """By mkwsgiinstance; return how it is started, and the Zope."""
        subprocess.run(
            [sys.executable, '-m', 'Zope2.utilities.mkwsgiinstance',
             '--dir', name, '--user', USER], check=True, **self.options)
        etc = pathlib.Path(self.path(name), 'etc')
        port = free_port()
        ini = etc / 'zope.ini'
        ini.write_text(re.sub('port = .*', f'port = {port}', ini.read_text()))
        (etc / 'zope.conf').write_text(ZOPE_CONF.format(
            directory=self.directory, instance=name, imported=imported,
            storage=storage.format(directory=self.directory, name='')))
        return [sys.executable, '-m', 'Zope2.Startup.serve', ini], Zope(port)

    def setUp(self):
        super().setUp()
        self.options['env']['PYTHONPATH'] += (
            os.pathsep + str(EXAMPLE / 'src'))

    def start_server(self):
        return self.start(
            [*SCRIPTS['fsync-runzeo'], '-C', 'zeo.conf'],
            lambda: answers(self.path('socket')))

    def check(self, zopes, restart):
        """`restart` kills a process and starts it again."""
        check_upload(zopes, UPLOAD)
        load = Load(zopes)
        with load.running():
            load.wait_for_changes(CHANGES)
            restart()
            load.wait_for_changes(CHANGES)
        load.check()


class OverTheStorage(Site):

    level = 3

    def test_zope_is_killed(self):
        command, zope = self.make_zope('zope', 'fsyncstorage', STORAGE)
        process = self.start(command, zope.is_up)

        def restart():
            process.kill()
            process.wait()
            self.start(command, zope.is_up)

        self.check([zope], restart)


class OverTheClient(Site):

    level = 2

    def test_the_server_is_killed(self):
        with open(self.path('zeo.conf'), 'w') as file:
            file.write(ZEO_CONF.format(directory=self.directory, name=' 1'))
        server = self.start_server()
        zopes = []
        for name in often(('one',), ('one', 'two')):
            command, zope = self.make_zope(
                name, 'fsyncstorage.client', CLIENT)
            self.start(command, zope.is_up)
            zopes.append(zope)

        def restart():
            server.kill()
            server.wait()
            self.start_server()

        self.check(zopes, restart)


class ByItsEntryPoint(Site):

    level = 2

    def test_a_zeoclient_is_opened_as_ours(self):
        """Whatever wrote zope.conf, `egg:fsyncstorage#zope` opens our client,
        with the keys of that section."""
        with open(self.path('zeo.conf'), 'w') as file:
            file.write(ZEO_CONF.format(directory=self.directory, name=' 1'))
        self.start_server()
        self.make_zope('zope', 'ZEO', ZEOCLIENT)
        ini = pathlib.Path(self.path('zope'), 'etc', 'zope.ini')
        ini.write_text(ini.read_text().replace(
            'egg:Zope#main', 'egg:fsyncstorage#zope'))
        shown = subprocess.run(
            [sys.executable, '-c', SHOW_STORAGE, ini], check=True,
            **self.options | {'stdout': subprocess.PIPE}).stdout
        self.assertIn('FsyncClient ' + self.path('blobcache'), str(shown))


class ControlPanel(Served):

    ASKED = 'db_name', 'db_size', 'database_size', 'cache_size'

    def shown(self, client):
        db = DB(client)
        self.addCleanup(db.close)
        panel = AltDatabaseManager()
        with db.transaction() as connection:
            panel._p_jar = connection
            return {name: getattr(panel, name)() for name in self.ASKED}

    def test_it_shows_what_it_shows_of_a_client_of_zeo(self):
        """(Plone's asks for the same.)"""
        server = self.serve()
        stock, ours = (self.shown(make(server.addr, name='a name'))
                       for make in (ClientStorage, FsyncClient))
        self.assertEqual(ours['db_name'], 'a name (connected)')
        self.assertEqual(ours, stock)
