"""What a client says of itself, and to whom."""

import asyncio
import importlib.metadata
import unittest
from unittest import mock

from fsyncstorage import wire
from fsyncstorage.client.introduction import Introduction
from fsyncstorage.version import own_version


class Introductions(unittest.TestCase):

    def setUp(self):
        self.loop = asyncio.new_event_loop()
        self.addCleanup(self.loop.close)
        self.said = []

    def introduce(self, version=wire.VERSION):
        return Introduction(
            self.loop, lambda method, arguments: self.said.append(
                (method, *arguments)), {'channel': version})

    def settle(self):
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def test_at_once_and_when_it_changes(self):
        introduction = self.introduce()
        for does in False, True, True, False:
            introduction.reads_locally(does)
        self.settle()
        self.assertEqual(self.said, [
            ('about_client', own_version(), does)
            for does in (False, True, False)])

    def test_not_to_a_server_that_may_not_know_the_call(self):
        for version in wire.VERSION - 1, wire.VERSION + 1, None:
            introduction = self.introduce(version)
            introduction.reads_locally(True)
            self.settle()
        self.assertEqual(self.said, [])

    def test_not_when_the_connection_has_ended(self):
        introduction = self.introduce()
        introduction.reads_locally(True)
        introduction.end()
        self.settle()
        self.assertEqual(len(self.said), 1)

    def test_the_loop_is_closed(self):
        introduction = self.introduce()
        self.loop.close()
        introduction.reads_locally(True)

    def test_where_it_is_not_installed(self):
        own_version.cache_clear()
        self.addCleanup(own_version.cache_clear)
        with mock.patch.object(
                importlib.metadata, 'version',
                side_effect=importlib.metadata.PackageNotFoundError):
            self.assertEqual(own_version(), 'unknown')
