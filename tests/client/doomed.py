"""Databases over a client whose server comes back without its end."""


import transaction
from persistent.mapping import PersistentMapping
from ZODB.DB import DB

from ..support import until
from .connected import ConnectedTestCase


class Person(PersistentMapping):
    """An object of a test."""


class View:
    """A connection to a database, with transactions of its own."""

    def __init__(self, db):
        self.manager = transaction.TransactionManager()
        self.connection = db.open(self.manager)
        self.commit = self.manager.commit
        self.begin = self.manager.begin

    @property
    def root(self):
        return self.connection.root()

    def close(self):
        self.manager.abort()
        self.connection.close()


class DoomedTestCase(ConnectedTestCase):

    crashes = 0

    def setUp(self):
        super().setUp()
        self.client = self.connect(blob_dir=self.path('cache'))
        self.db = DB(self.wrapped(self.client))
        self.addCleanup(self.db.close)
        view = self.view()
        view.root['a'], view.root['b'] = Person(), Person()
        view.commit()

    def wrapped(self, client):
        return client

    def view(self):
        view = View(self.db)
        self.addCleanup(view.close)
        return view

    def keep(self):
        """What there is now survives the crash."""
        self.crashes += 1
        storage = self.open_kept()
        storage.copyTransactionsFrom(self.storage)
        storage.close()
        with open(self.path(f'kept-{self.crashes}.unsynced'), 'w'):
            pass

    def open_kept(self):
        name = f'kept-{self.crashes}'
        return self.open(name, blob_dir=self.path(f'{name}-blobs'))

    def commit(self, **values):
        """Return a view; its transaction begins behind this."""
        view = self.view()
        for name, value in values.items():
            view.root[name]['value'] = value
        view.commit()
        return view

    def lose(self, before_serving=lambda storage: None):
        """All that was not kept."""
        with self.another_stream(self.client):
            self.end_server()
            self.serve_kept(before_serving)

    def serve_kept(self, before_serving=lambda storage: None):
        self.storage = self.open_kept()
        before_serving(self.storage)
        self.serve()

    def end_server(self):
        """Return when the client knows."""
        super().end_server()
        until(lambda: not self.client.is_connected(), 'disconnected')
