"""A Plone site over ZEO: the first page, warm pages, edits, and files.

A Zope with four threads and its ZEO server run on one machine, and so does who
asks.  The site is made once, by FileStorage, and copied for each sample: so
all contestants serve the same files, and a stock site is moved in each time.

Plone is asked for in the environment: PYTHON_WITH_PLONE is a Python with Plone
and ZEO, which need not have this package.
"""

import base64
import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import threading
import time

import fsyncstorage
from fsyncstorage.timing.running import crew
from fsyncstorage.timing.running.sampling import Race

from .campaign import Campaign
from .ports import free_port

PYTHON = os.environ.get('PYTHON_WITH_PLONE')
#: For both programs.
ENVIRONMENT = {
    **os.environ, 'PYTHONPATH': os.path.dirname(
        os.path.dirname(os.path.abspath(fsyncstorage.__file__)))}

FOLDERS, PAGES = 10, 50
#: Of one kind of request, and before it counts; in a full and a quick run.
SECONDS, WARM = (5.0, 2.0), (2.0, 1.0)
READERS, EDITORS, UPLOADERS = 2, 4, 1
FILE = base64.b64encode(os.urandom(1 << 20)).decode()
#: Until a program listens, answers or has ended.
PATIENCE = 120

MAKE = f'''
import sys

import transaction
from AccessControl.SecurityManagement import newSecurityManager
from Testing.makerequest import makerequest
from zope.component.hooks import setSite
from zope.globalrequest import setRequest
from Zope2.Startup.run import configure_wsgi

configure_wsgi(sys.argv[1])
import Zope2
from plone.app.textfield.value import RichTextValue
from Products.CMFPlone.factory import addPloneSite

app = makerequest(Zope2.app())
setRequest(app.REQUEST)
users = app.acl_users
users._doAddUser('admin', 'admin', ['Manager'], [])
newSecurityManager(None, users.getUserById('admin').__of__(users))
site = addPloneSite(app, 'Plone', distribution_name='classic')
setSite(site)
for number in range({FOLDERS}):
    folder = site[site.invokeFactory('Folder', f'folder-{{number}}')]
    site.portal_workflow.doActionFor(folder, 'publish')
    for page in range({PAGES}):
        page = folder[folder.invokeFactory(
            'Document', f'page-{{page}}', title=f'Page {{page}}')]
        page.text = RichTextValue(
            '<p>' + 'Lorem ipsum dolor. ' * 150, 'text/html', 'text/html')
        site.portal_workflow.doActionFor(page, 'publish')
    transaction.commit()
'''

ZEO = '''
{imports}
<zeo>
  address 127.0.0.1:{zeo}
</zeo>
<{storage} 1>
  path Data.fs
  blob-dir blobs
  {option}
</{storage}>
'''

ZOPE = '''
{imports}
%define INSTANCE {directory}
instancehome $INSTANCE
<zodb_db main>
  mount-point /
  cache-size 30000
{client}
</zodb_db>
'''

FROM_FILE = '''
  <filestorage>
    path {directory}/Data.fs
    blob-dir {directory}/blobs
  </filestorage>
'''

FROM_SERVER = '''
  <{client}>
    server 127.0.0.1:{zeo}
    blob-dir {directory}/cache
    cache-size 128MB
  </{client}>
'''

WSGI = '''
[app:main]
use = egg:Zope#main
zope_conf = {directory}/zope.conf

[server:main]
use = egg:waitress#main
host = 127.0.0.1
port = {web}
threads = 4
'''


class Conflict(Exception):
    """Zope has tried it several times, in vain."""


@dataclasses.dataclass(frozen=True)
class Site:

    name: str
    summary: str
    #: The module of the server's command.
    server: str
    storage: str
    client: str
    #: A line of the storage's section.
    option: str = ''

    def missing(self):
        return None if PYTHON else 'PYTHON_WITH_PLONE names no Python'

    @contextlib.contextmanager
    def running(self, directory):
        """Yields the port of a Zope that was never asked, and a function: the
        seconds of processors that the two programs took."""
        zeo, web = free_port(), free_port()
        names = {'directory': directory, 'zeo': zeo, 'web': web,
                 'storage': self.storage, 'client': self.client,
                 'option': self.option}
        ours = self.server.startswith('fsyncstorage')
        (directory / 'zeo.conf').write_text(ZEO.format(
            imports='%import fsyncstorage' * ours, **names))
        (directory / 'zope.conf').write_text(ZOPE.format(
            imports='%import fsyncstorage.client' * ours,
            **{**names, 'client': FROM_SERVER.format(**names)}))
        (directory / 'zope.ini').write_text(WSGI.format(**names))
        with program(directory, f'from {self.server} import main; main()',
                     '-C', 'zeo.conf') as server:
            until_it_listens(zeo, server)
            with program(directory, 'from Zope2.Startup.serve import main;'
                         ' main()', 'zope.ini') as zope:
                until_it_listens(web, zope)
                yield web, lambda: took(server.pid) + took(zope.pid)


STOCK, OURS, LOCAL = CONTESTANTS = [
    Site('zeo', 'ZEO over FileStorage', 'ZEO.runzeo', 'filestorage',
         'zeoclient'),
    Site('fsync-client', 'all three of ours', 'fsyncstorage.server.runzeo',
         'fsyncstorage', 'fsyncclient'),
    Site('fsync-client:local', 'the same, with local-reads',
         'fsyncstorage.server.runzeo', 'fsyncstorage', 'fsyncclient',
         'local-reads on')]


@contextlib.contextmanager
def program(directory, code, *arguments):
    """In a session of its own, by which all that it starts is found."""
    with open(directory / 'log', 'a') as log, subprocess.Popen(
            [PYTHON, '-c', code, *arguments], env=ENVIRONMENT, cwd=directory,
            stdout=log, stderr=log, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


def until_it_listens(port, process):
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError), contextlib.closing(
                http.client.HTTPConnection('127.0.0.1', port)) as there:
            return there.connect()
        if process.poll() is not None or time.monotonic() > deadline:
            raise ChildProcessError('a program does not listen: see its log')
        time.sleep(0.02)


def took(session):
    """Seconds of processors, of all processes of a session."""
    ticks = 0
    for each in pathlib.Path('/proc').glob('[0-9]*/stat'):
        with contextlib.suppress(OSError):
            _, _, figures = each.read_text().rpartition(')')
            figures = figures.split()
            if int(figures[3]) == session:
                ticks += int(figures[11]) + int(figures[12])
    return ticks / os.sysconf('SC_CLK_TCK')


def built(directory):
    """A copy of the site; it is made beside the directory, once."""
    template = directory.parent / 'plone'
    if not template.exists():
        new = directory.parent / 'plone.new'
        new.mkdir()
        (new / 'zope.conf').write_text(ZOPE.format(
            imports='', directory=new,
            client=FROM_FILE.format(directory=new)))
        subprocess.run([PYTHON, '-c', MAKE, 'zope.conf'], cwd=new,
                       env=ENVIRONMENT, check=True, capture_output=True)
        new.rename(template)
    shutil.copytree(template, directory, dirs_exist_ok=True)
    os.sync()   # or the system writes it meanwhile


def measure(contestant, directory, *, seconds, warm):
    directory = pathlib.Path(directory)
    built(directory)
    with contestant.running(directory) as (port, cpu):
        begun = time.perf_counter()
        asked(port, 'GET', '/Plone')
        figures = {'first_page_seconds': time.perf_counter() - begun}
        files = []
        for name, threads, request in [
                ('pages', READERS, page), ('edits', EDITORS, edit),
                ('uploads', UPLOADERS, lambda port, chosen: files.append(
                    upload(port, chosen))),
                ('downloads', READERS, lambda port, chosen: asked(
                    port, 'GET', f'{chosen.choice(files)}/@@download/file'))]:
            repeated(port, threads, warm, request)
            before = cpu()
            times = repeated(port, threads, seconds, request)
            figures.update({
                f'{name}_per_second': len(times) / seconds,
                f'{name}_cpu_seconds': (cpu() - before) / len(times),
                **{f'{name}_{figure}': value
                   for figure, value in crew.times(times).items()}})
    return figures


def repeated(port, threads, seconds, request):
    """How long each request took."""
    times, errors = [], []
    deadline = time.perf_counter() + seconds

    def repeat(number):
        chosen = random.Random(number)
        try:
            while (begun := time.perf_counter()) < deadline:
                with contextlib.suppress(Conflict):
                    request(port, chosen)
                    times.append(time.perf_counter() - begun)
        except Exception as error:
            errors.append(error)

    several = [threading.Thread(target=repeat, args=(number,))
               for number in range(threads)]
    for each in several:
        each.start()
    for each in several:
        each.join()
    if errors:
        raise errors[0]
    return times


def a_page(chosen):
    return (f'/Plone/folder-{chosen.randrange(FOLDERS)}'
            f'/page-{chosen.randrange(PAGES)}')


def page(port, chosen):
    asked(port, 'GET', a_page(chosen), as_admin=False)


def edit(port, chosen):
    """As the editor of Plone does: object, catalog and its indexes change."""
    asked(port, 'PATCH', a_page(chosen), {'title': f'At {chosen.random()}'})


def upload(port, chosen):
    """The path of a file of a megabyte."""
    added = asked(port, 'POST', '/Plone/folder-1', {
        '@type': 'File', 'title': f'File {chosen.random()}', 'file': {
            'data': FILE, 'encoding': 'base64', 'filename': 'file',
            'content-type': 'application/octet-stream'}})
    return json.loads(added)['@id'].partition(f':{port}')[2]


def asked(port, method, path, content=None, as_admin=True):
    headers = {}
    if as_admin:
        headers['Authorization'] = (
            'Basic ' + base64.b64encode(b'admin:admin').decode())
    if content is not None:
        headers['Accept'] = headers['Content-Type'] = 'application/json'
    with contextlib.closing(http.client.HTTPConnection(
            '127.0.0.1', port, timeout=PATIENCE)) as connection:
        connection.request(
            method, path, content and json.dumps(content), headers)
        answer = connection.getresponse()
        body = answer.read()
    if answer.status == 500 and b'conflict error' in body:
        raise Conflict
    if answer.status >= 400:
        raise ValueError(f'{method} {path}: {answer.status}, {body[:500]!r}')
    return body


def races(quick):
    return [Race('plone', {'seconds': SECONDS[quick], 'warm': WARM[quick]},
                 measure, (
                     'first_page_seconds', 'pages_per_second',
                     'edits_per_second', 'uploads_per_second',
                     'downloads_per_second'))]


def added(contestants):
    yield ('Zope, its ZEO server and who asks were on one machine. Uploads and'
           ' downloads are of 1 MB.')


CAMPAIGNS = [Campaign(
    'plone', 'a Plone site over ZEO', CONTESTANTS, races, rounds=5,
    added=added)]
