"""Nodes with blobs: one that writes, and others that follow, over one log."""

import contextlib
import glob
import os
import pickle
import threading

from ZODB.blob import LAYOUTS
from ZODB.blob import Blob

from fsyncstorage.commit.blobs import UPLOAD
from fsyncstorage.quorum.following.rejoin import rejoin
from fsyncstorage.quorum.history.record import Data
from fsyncstorage.quorum.history.record import Epoch
from fsyncstorage.quorum.history.record import parse
from fsyncstorage.quorum.leading import tidying
from fsyncstorage.quorum.log.reading import Reader

from ..support import begin
from ..support import until
from .fakelog import FakeLog
from .logged import apply
from .logged import bootstrap
from .nodes import IN_PROCESS
from .nodes import NodeTest
from .nodes import bodies

#: Of any blob.
RECORD = pickle.dumps(Blob, 3)


def found_blobs(blob_dir):
    """Blobs, by their paths; and what is uploaded.  (Others may have files in
    `tmp`, too.)"""
    found = {}
    for parent, _, names in os.walk(blob_dir):
        for name in names:
            path = os.path.join(parent, name)
            if name.startswith(UPLOAD) or name.endswith('.blob'):
                with open(path, 'rb') as file:
                    found[os.path.relpath(path, blob_dir)] = file.read()
    return found


def named_blobs(engine):
    """The same for what a log says: that of all whole batches."""
    found, of_batch = {}, {}
    layout = LAYOUTS['bushy']
    for raw in engine.records:
        record = parse(raw)
        body = record.body
        if isinstance(body, Epoch):
            of_batch = {}
        elif isinstance(body, Data):
            of_batch |= {
                layout.getBlobFilePath(blob.oid, blob.tid): b''.join(
                    data for (id, _), data in sorted(engine.blobs.items())
                    if id == blob.staged)
                for blob in body.blobs}
            if record.position + len(body.data) == body.end:
                found |= of_batch
                of_batch = {}
    return found


class BlobNodeTest(NodeTest):

    def setUp(self):
        super().setUp()
        self.patch(tidying, LOOK_EVERY=0.01)

    def blob_dir(self, node):
        return self.path(os.path.join(node, 'blobs'))

    def follow(self, node='b', log=None, blob_dir=True):
        """The start of a node."""
        path = self.path_of(node)
        if not os.path.exists(path):
            bootstrap(path)
        follower = rejoin(
            path, FakeLog(self.engine) if log is None else log,
            threading.Event(), IN_PROCESS,
            self.blob_dir(node) if blob_dir else None)
        self.addCleanup(follower.close)
        return follower

    def lead(self, node='a', **options):
        storage = super().lead(node, blob_dir=self.blob_dir(node), **options)
        tidied = storage.replica._tidying
        until(lambda: tidied._swept is not None,
              'it has looked for what was left')
        return storage

    def apply(self, follower):
        """All that the log has, but for what is refused."""
        reader = Reader(follower.log, follower.state)
        while given := reader.read():
            for applied in given:
                apply(follower, applied)
        follower.sync()

    def begin_blobs(self, storage, contents, serials={}):
        transaction = begin(storage)
        for number, content in contents.items():
            self.store_blob(
                storage, transaction, number, content,
                serials.get(number, bytes(8)), RECORD)
        return transaction

    def vote_blobs(self, storage, contents, serials={}):
        transaction = self.begin_blobs(storage, contents, serials)
        storage.tpc_vote(transaction)
        return transaction

    def commit_blobs(self, storage, contents, serials={}):
        return storage.tpc_finish(
            self.vote_blobs(storage, contents, serials))

    def blobs_in_the_log(self):
        """What its records name."""
        return [blob for body in bodies(self.engine)
                if isinstance(body, Data) for blob in body.blobs]

    def blob_files(self, node):
        return found_blobs(self.blob_dir(node))

    def lists(self, node):
        """What is on the lists of objects whose blobs are new."""
        found = []
        for path in glob.glob(self.path_of(node) + '.quorum.blobs-*'):
            # (Its node may remove it meanwhile.)
            with contextlib.suppress(FileNotFoundError), \
                    open(path, 'rb') as file:
                found.append(file.read())
        return found

    def contents(self, node):
        return sorted(self.blob_files(node).values())
