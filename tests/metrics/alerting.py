"""What a server shows while something is wrong with it, and which alerts of
examples/prometheus fire then.

A test makes the fault, and takes a scrape before and behind it.  promtool gets
the figures of these as series, with times of its own, which begin at 0: so the
figures that are times are moved by the time of the first scrape.  A fault that
lasts is the last scrape for as long as the rule wants, or the last change
again and again.
"""

import json
import pathlib
import re
import subprocess
import time

from prometheus_client.parser import text_string_to_metric_families

from .asking import get

EXAMPLES = pathlib.Path(__file__).parents[2] / 'examples'
ALERTS = EXAMPLES / 'prometheus' / 'alerts.yml'

#: What Prometheus adds to all that it has scraped.
TARGET = {'job': 'fsyncstorage', 'instance': 'here'}

#: Alerts that fire, by their names.
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'


class Node:
    """One of a quorum, as its storage is not open yet."""

    trouble = 'this node is a standby'

    def __init__(self, **figures):
        self.figures = {
            'role': 'standby', 'node': 'a', 'trouble': self.trouble,
            'epoch': 1, 'sequence': 1, 'generation': 0, 'lag_records': 0,
            'lag_bytes': 0, 'seconds_without_contact': 0.0, 'log_size': 0,
            'log_limit': 100, **figures}

    def stats(self):
        return self.figures


def rules():
    """name -> expression, of all alerts."""
    found = re.findall(
        r'^      - alert: (\w+)\n(?: +#.*\n)* +expr: (?:\|\n((?: {10}.*\n)+)'
        r'|(.*)\n)', ALERTS.read_text(), re.MULTILINE)
    return {name: block or line for name, block, line in found}


def samples(text):
    """(name, labels) -> value."""
    return {
        (each.name, tuple(sorted({**each.labels, **TARGET}.items()))):
        each.value for family in text_string_to_metric_families(text)
        for each in family.samples}


class Series:
    """The figures of one address, as Prometheus would have them."""

    def __init__(self, address, interval):
        """`interval` is that of the scrapes, in seconds."""
        self.address = address
        self._interval = interval
        self._begun = None
        self._scrapes = []
        self._rests = []  # behind each: how often it comes again, and how

    def take(self):
        """One scrape more."""
        now = time.time()
        self._begun = self._begun or now
        try:
            status, text = get(self.address, '/metrics')
            assert status == 200, text
            scrape = {key: self._moved(*key, value)
                      for key, value in samples(text).items()}
        except OSError:
            scrape = {}
        scrape['up', tuple(sorted(TARGET.items()))] = float(bool(scrape))
        self._scrapes.append(scrape)
        self._rests.append((0, False))

    def _moved(self, name, labels, value):
        return value - self._begun * name.endswith('_timestamp_seconds')

    def beside(self, other):
        """The figures of another address, taken as often."""
        for scrape, more in zip(self._scrapes, other._scrapes, strict=True):
            scrape.update(more)

    def it_stays_so(self, seconds):
        self._rests[-1] = int(seconds / self._interval), False

    def it_stayed_so(self, seconds):
        """Also, what is done from now on is done so much later."""
        self.it_stays_so(seconds)
        self._begun -= seconds

    def it_goes_on(self, seconds):
        """The change since the scrape before comes again and again."""
        self._rests[-1] = int(seconds / self._interval), True

    def firing(self):
        """The alerts that fire at the end."""
        count = sum(1 + rest for rest, _ in self._rests)
        return self._asked(FIRING, (count - 1) * self._interval)

    def _asked(self, query, at):
        test = {
            'rule_files': [str(ALERTS)],
            'evaluation_interval': f'{max(self._interval, 15)}s',
            'tests': [{
                'interval': f'{self._interval}s',
                'input_series': self._input(),
                # What is expected is never so: it says what it has got.
                'promql_expr_test': [{
                    'expr': query, 'eval_time': f'{at}s',
                    'exp_samples': [{'labels': '{never="so"}', 'value': 1}],
                }]}]}
        # YAML is a superset of JSON.
        done = subprocess.run(
            ['promtool', 'test', 'rules', '/dev/stdin'],
            input=json.dumps(test), text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=120)
        got = re.search(r'got: *(.*)', done.stdout)
        assert done.returncode == 1 and got, done.stdout
        return re.findall(r'alertname="(\w+)"', got[1])

    def _input(self):
        keys = sorted({key for scrape in self._scrapes for key in scrape})
        return [{
            'series': name + json_labels(labels),
            'values': ' '.join(self._values((name, labels)))}
            for name, labels in keys]

    def _values(self, key):
        before = None
        for scrape, (rest, changes) in zip(self._scrapes, self._rests):
            value = scrape.get(key)
            if value is None:
                # (Unlike a value, "_x3" is three of them.)
                yield f'_x{rest + 1}'
            else:
                step = value - before if changes and before is not None else 0
                yield (f'{value:.9g}{step:+.9g}x{rest}' if rest
                       else f'{value:.9g}')
            before = value


def json_labels(labels):
    return '{%s}' % ','.join(
        f'{name}={json.dumps(value)}' for name, value in labels)
