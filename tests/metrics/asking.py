"""Asking for metrics and probes, as those do that watch a server."""

import json
import pathlib
import urllib.error
import urllib.request
from unittest import mock

from prometheus_client.parser import text_string_to_metric_families

from fsyncstorage.metrics import exporters
from fsyncstorage.metrics.address import shown

from ..support import PATIENCE

EXAMPLES = pathlib.Path(__file__).parents[2] / 'examples'


class NothingIsKept:
    """For a TestCase: figures are read whenever they are asked for."""

    def setUp(self):
        super().setUp()
        kept = mock.patch.object(exporters, 'KEPT', 0)
        kept.start()
        self.addCleanup(kept.stop)


def get(address, path):
    """The status, and the text."""
    try:
        with urllib.request.urlopen(
                f'http://{shown(address)}{path}', timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def probe(address, path):
    status, text = get(address, path)
    return status, json.loads(text)


def metrics(address):
    """(name, labels but `storage`, in the order of their names) -> value."""
    status, text = get(address, '/metrics')
    assert status == 200, text
    return {
        (sample.name, *(value for name, value in sorted(sample.labels.items())
                        if name != 'storage')): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples}
