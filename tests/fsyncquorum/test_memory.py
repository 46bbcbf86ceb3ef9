"""The memory of a member of etcd, by metrics of anybody."""

import contextlib
import http.server
import unittest

from fsyncstorage.fsyncquorum import memory
from fsyncstorage.quorum.etcd.settings import Settings

from ..support import Thread

METRICS = b"""# TYPE process_open_fds gauge
process_open_fds 21
process_resident_memory_bytes 3.4157568e+08
"""


@contextlib.contextmanager
def answering(body, status=200):
    """Yields the client URL of a member that has these metrics."""
    class Handler(http.server.BaseHTTPRequestHandler):

        def do_GET(self):
            with contextlib.suppress(OSError):  # it hears no more
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(('127.0.0.1', 0), Handler) as server:
        thread = Thread(server.serve_forever)
        try:
            yield f'http://127.0.0.1:{server.server_port}'
        finally:
            server.shutdown()
            thread.result()


class Memory(unittest.TestCase):

    level = 2

    def of(self, *answer):
        with answering(*answer) as address:
            return memory.resident(address, Settings([address], 'prefix'))

    def test_it_is_read(self):
        self.assertEqual(self.of(METRICS), 341_575_680)

    def test_what_says_nothing_of_it(self):
        for answer in b'', b'process_resident_memory_bytes -\n', (
                b'process_resident_memory_bytes ' + b'9' * 31 + b'\n'), (
                b'process_resident_memory_bytes 1e999\n'), (
                b'process_resident_memory_bytes 1e1e1\n'), (
                b'#' * memory.BYTES + METRICS):
            with self.subTest(answer[-50:]):
                self.assertIsNone(self.of(answer))

    def test_nobody_answers(self):
        with answering(METRICS) as address:
            pass
        self.assertIsNone(
            memory.resident(address, Settings([address], 'prefix')))
        self.assertIsNone(memory.resident(
            address.replace('http', 'https'), Settings([address], 'prefix')))
