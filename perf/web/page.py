"""The WSGI application of `fsync-time wsgi`: a page, and counters.

``GET /`` reads the page object and its children, and lists them.  ``POST /3``
adds one to the counter of that number, and answers with what it is then.  Each
request has a connection and a transaction of its own.

The database belongs to the process that opened it, so that is done behind the
last fork.
"""

import contextlib
import html
import http

import transaction
import ZODB

from .. import population
from ..supervisor import one_line

CHILDREN = 10

#: Another process may have changed the counter a moment ago.
_ATTEMPTS = 20


def plant(site, counters):
    """What the application shows and changes."""
    population.plant(site, page=CHILDREN, counters=counters)


class Application:

    def __init__(self, site):
        self._site = site

    def open(self):
        """In the process that serves; one look fills its caches."""
        self._db = ZODB.DB(self._site.open())
        self._show()

    def __call__(self, environ, start_response):
        try:
            status, text = http.HTTPStatus.OK, self._answer(environ)
        except Exception as error:
            status = http.HTTPStatus.INTERNAL_SERVER_ERROR
            text = one_line(error)
        body = text.encode()
        start_response(f'{status.value} {status.phrase}', [
            ('Content-Type', 'text/html; charset=utf-8'),
            ('Content-Length', str(len(body)))])
        return [body]

    def _answer(self, environ):
        if environ['REQUEST_METHOD'] == 'POST':
            return str(self._count(int(environ['PATH_INFO'].strip('/'))))
        return self._show()

    def _show(self):
        with self._connection() as connection:
            items = '\n'.join(
                f'<li>{child["number"]}: {html.escape(child["filling"])}'
                for child in population.ghosts(connection, 'page'))
            return f'<!DOCTYPE html>\n<title>Page</title>\n<ul>\n{items}\n'

    def _count(self, number):
        with self._connection() as connection:
            counter = population.ghosts(connection, 'counters')[number]
            for attempt in connection.transaction_manager.attempts(
                    _ATTEMPTS):
                with attempt:
                    counter['count'] = counter.get('count', 0) + 1
                    count = counter['count']
            return count

    @contextlib.contextmanager
    def _connection(self):
        manager = transaction.TransactionManager()
        connection = self._db.open(manager)
        try:
            yield connection
        finally:
            manager.abort()
            connection.close()
