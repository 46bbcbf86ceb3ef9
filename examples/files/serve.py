"""A small site that keeps files in the database: upload, list, download.

    pip install 'fsyncstorage[files]' waitress
    python examples/files/serve.py

The data are in var/ in the current directory.  Everybody who can reach the
address can upload, so only this machine can reach it.
"""

import argparse
import html
import os
import pathlib
import shutil
from urllib.parse import quote

import waitress
import ZODB
from BTrees.OOBTree import OOBTree
from persistent.mapping import PersistentMapping
from webob import Request
from webob import Response
from webob import exc
from ZODB.blob import Blob

from fsyncstorage import FsyncStorage
from fsyncstorage.files.handover import configured
from fsyncstorage.files.response import BlobResponse

PAGE = pathlib.Path(__file__).with_name('page.html')

ROW = ('<li><a href="/files/{address}">{name}</a>'
       ' <span>{size}</span></li>')


class Site:

    def __init__(self, db, hand_over=None):
        self._db = db
        self._hand_over = hand_over
        with db.transaction() as connection:
            connection.root().setdefault('files', OOBTree())

    def __call__(self, environ, start_response):
        request = Request(environ)
        if request.path_info.startswith('/files/'):
            answer = self._download(request)
        elif request.path_info != '/':
            answer = exc.HTTPNotFound()
        elif request.method == 'POST':
            answer = self._upload(request)
        else:
            answer = self._list()
        return answer(environ, start_response)

    def _download(self, request):
        """Everybody may have everything.

        The connection is closed before the file is sent.
        """
        name = request.path_info.removeprefix('/files/')
        with self._db.transaction() as connection:
            upload = connection.root()['files'].get(name)
            if upload is None:
                return exc.HTTPNotFound()
            return BlobResponse(
                request, upload['blob'], upload['type'], name,
                hand_over=self._hand_over)

    def _list(self):
        with self._db.transaction() as connection:
            rows = [ROW.format(address=quote(name, safe=''),
                               name=html.escape(name),
                               size=readable(upload['size']))
                    for name, upload in connection.root()['files'].items()]
        page = PAGE.read_text('utf-8').replace(
            '<!-- files -->', '\n'.join(rows) or '<li>Nothing yet.</li>')
        return Response(page)

    def _upload(self, request):
        sent = request.POST.get('file')
        if not getattr(sent, 'filename', None):
            return exc.HTTPBadRequest('There is no file in it.')
        blob = Blob()
        with blob.open('w') as file:
            shutil.copyfileobj(sent.file, file, 1 << 16)
            size = file.tell()
        upload = PersistentMapping(blob=blob, type=sent.type, size=size)
        with self._db.transaction() as connection:
            connection.root()['files'][sent.filename] = upload
        return exc.HTTPSeeOther(location='/')


def readable(size):
    for unit in 'bytes', 'KB', 'MB':
        if size < 1000:
            return f'{size:.4g} {unit}'
        size /= 1000
    return f'{size:.4g} GB'


def main():
    parser = argparse.ArgumentParser(
        description='Serve a site that keeps files in a database.')
    parser.add_argument('--port', type=int, default=8080)
    parser.add_argument(
        '--x-accel-redirect', default='', metavar='"LOCATION DIRECTORY"',
        help='let nginx send the files: see examples/nginx/blobs.conf')
    options = parser.parse_args()
    os.makedirs('var', exist_ok=True)
    db = ZODB.DB(FsyncStorage('var/Data.fs', blob_dir='var/blobs'))
    site = Site(db, configured(options.x_accel_redirect))
    print(f'http://127.0.0.1:{options.port}/ serves the files in'
          f' {os.path.abspath("var")}.  Ctrl-C stops it.', flush=True)
    try:
        waitress.serve(site, host='127.0.0.1', port=options.port,
                       max_request_body_size=1 << 40)
    finally:
        db.close()


if __name__ == '__main__':
    main()
