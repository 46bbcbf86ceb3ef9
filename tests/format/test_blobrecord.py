"""Records of blobs, told by their first bytes: the same as ZODB tells."""

import binascii
import itertools
import os
import tracemalloc
import unittest
import zlib
from unittest import mock

from ZODB._compat import Pickler
from ZODB.blob import Blob
from ZODB.blob import FilesystemHelper
from ZODB.blob import is_blob_record
from ZODB.serialize import ObjectWriter
from ZODB.tests.MinPO import MinPO

from fsyncstorage.check import findings
from fsyncstorage.check import verify
from fsyncstorage.format.blobrecord import FRONT
from fsyncstorage.format.blobrecord import is_of_blob

from ..support import TestCase
from ..support import oid
from . import hostilefiles
from .sealing import window_of
from .sealing import write


def compressed(data):
    return b'.z' + zlib.compress(data)


def hexed(data):
    return b'.h' + binascii.hexlify(data)


class BlobRecordTests(unittest.TestCase):

    def test_what_zodb_writes(self):
        blob = ObjectWriter().serialize(Blob())
        self.assertTrue(is_of_blob(blob))
        for wrap in (compressed, hexed, lambda data: hexed(compressed(data)),
                     lambda data: compressed(hexed(data))):
            self.assertTrue(is_of_blob(wrap(blob)[:FRONT]))
        for other in MinPO(Blob), MinPO('cZODB.blob\nBlob\n.'):
            self.assertFalse(is_of_blob(ObjectWriter().serialize(other)))

    def test_every_protocol(self):
        for protocol, fast in itertools.product(range(4), (False, True)):
            data = []
            pickler = Pickler(mock.Mock(write=data.append), protocol)
            pickler.fast = fast
            pickler.dump(Blob)
            data = b''.join(data) + b'N.'
            self.assertTrue(is_blob_record(data))
            self.assertTrue(is_of_blob(data))

    def test_what_is_none(self):
        for data in (b'', b'.', b'.z', b'.h', b'.z.z', b'.hx', b'N.N.',
                     b'cZODB.blob\nBlobs\n.', b'cZODB.blob\nBlob\nN\x86.',
                     b'(cZODB.blob\nBlob\nNt.', b'cZODB.blob\nBlob\n'):
            self.assertFalse(is_of_blob(data), data)
            self.assertFalse(is_blob_record(data), data)


class CheckTests(TestCase):

    def check(self, *records):
        """The result of a check with a blob directory."""
        file = hostilefiles.File()
        for number, data in enumerate(records):
            file.append(lambda position, here: hostilefiles.record(
                position, number, data, tid=file.tid))
        return verify.verify(
            window_of(bytes(file.data)), FilesystemHelper(self.directory))

    def test_memory(self):
        """A memo index takes none, nor does what is compressed."""
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        self.check(*[
            b'cZODB.blob\nBlob\nr\xff\xff\x7f\x00.N.',
            compressed(b'N.X' + (1 << 24).to_bytes(4, 'little')
                       + bytes(1 << 24) + b'.')] * 2)
        # Twice what the walk of the second one takes.
        self.assertLess(tracemalloc.get_traced_memory()[1], 4 << 24)

    def test_no_bound_makes_the_file_of_a_blob_one_without_record(self):
        """It would be taken for what can be removed."""
        helper = FilesystemHelper(self.directory)
        helper.create()
        path = helper.getBlobFilename(oid(0), oid(1))
        os.makedirs(os.path.dirname(path))
        write(path, b'')
        with mock.patch.multiple(verify.Budget, AT_LEAST=0, TIMES=0):
            report = self.check(b'cZODB.blob\nBlob\n.N.').report
        self.assertEqual(report.counts, {findings.UNREAD: 1})
        self.assertEqual(report.blobs, {'records': 1, 'files': 1})
