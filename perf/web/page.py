"""An application that makes a page of objects: it lists them.

Each request has a connection and a transaction of its own.
"""

import html

import ZODB
import ZODB.config

from fsyncstorage.timing import population

CHILDREN = 10


def plant(site):
    """What the application shows."""
    population.plant(site, page=CHILDREN)


class Page:

    def __init__(self, options):
        self._storage = options['storage']

    def open(self):
        """In the process that serves; one look fills its caches."""
        self._db = ZODB.DB(ZODB.config.storageFromString(self._storage))
        self._show()

    def __call__(self, environ, start_response):
        body = self._show().encode()
        start_response('200 OK', [
            ('Content-Type', 'text/html; charset=utf-8'),
            ('Content-Length', str(len(body)))])
        return [body]

    def _show(self):
        with self._db.transaction() as connection:
            items = '\n'.join(
                f'<li>{child["number"]}: {html.escape(child["filling"])}'
                for child in population.ghosts(connection, 'page'))
            return f'<!DOCTYPE html>\n<title>Page</title>\n<ul>\n{items}\n'
