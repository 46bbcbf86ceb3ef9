"""Which reply may come when, where no other test shows it."""

import unittest

from ZODB.utils import z64

from fsyncstorage.wire import frames
from fsyncstorage.wire.order import Order


class Blobs(unittest.TestCase):

    def test_elsewhere(self):
        """Not when some of it has come: its client would ask from the begin.
        """
        order = Order(z64)
        for begun in False, True:
            number = order.asks(frames.GetBlob(0, z64, z64, 0, 100)).number
            if begun:
                order.take(frames.BlobSize(number, 5))
                self.assertRaises(
                    frames.PeerError, order.take, frames.Elsewhere(number))
            else:
                order.take(frames.Elsewhere(number))
                self.assertIsNone(order.state(number))
