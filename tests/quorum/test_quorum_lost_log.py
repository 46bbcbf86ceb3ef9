"""The log is lost, and etcd was made anew, while nodes run: they write nothing
into it, so that another log can begin there; and they say what happened.
"""

from fsyncstorage.quorum.history.fold import beginning
from fsyncstorage.quorum.leading.writer import Fenced
from fsyncstorage.quorum.leading.writer import Writer

from .gateway import GatewaysCase
from .logged import NODE
from .samples import LOG
from .samples import identify


class Lost(GatewaysCase):

    def setUp(self):
        super().setUp()
        self.log = self.another()
        self.log.create(LOG)
        self.store = self.gateways.members[0].store

    def test_nothing_is_put_where_no_log_is(self):
        self.log.hold(b'a', 10.0)
        self.store.values.clear()
        self.assertEqual(self.log.hold(b'a', 10.0), 0)
        self.log.note(b'a', b'a note')
        self.log.stage(b'b' * 16, 0, b'a chunk')
        self.assertEqual(self.store.values, {})
        self.log.create(LOG)
        self.assertTrue(self.log.hold(b'a', 10.0))

    def test_who_writes_is_told(self):
        """And does not wait for a log that will not come back."""
        writer = Writer(self.log, beginning(LOG, 0, 4), identify('a'))
        writer.lead(NODE)
        writer.advance()
        self.store.values.clear()
        writer.lead(NODE)
        with self.assertRaisesRegex(Fenced, 'there is no log'):
            writer.advance()
        self.assertEqual(self.store.values, {})
