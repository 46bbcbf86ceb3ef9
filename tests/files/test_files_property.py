"""Whatever is asked for, what is said of the bytes is true of the file."""

import re
from email.utils import formatdate

from hypothesis import HealthCheck
from hypothesis import strategies as st

from fsyncstorage.files.source import Source

from ..generated import given
from ..generated import settings
from ..often import often
from .asking import FilesTest

SIZES = 0, 1, 2, 1000, (1 << 16) + 1

_numbers = st.integers(0, 1100) | st.sampled_from([1 << 16, 10**19])
_bounds = st.tuples(st.none() | _numbers, st.none() | _numbers)


def _written(bounds):
    return '-'.join('' if each is None else str(each) for each in bounds)


_ranges = st.lists(_bounds, min_size=1, max_size=3).map(
    lambda pairs: 'bytes=' + ','.join(map(_written, pairs)))
_headers = st.fixed_dictionaries({}, optional={
    'Range': _ranges | st.text('bytes=,- 0123456789', max_size=20),
    'If-Range': st.sampled_from(['tag', 'date', '"x"', 'W/tag', 'later']),
    'If-Match': st.sampled_from(['tag', '"x"', '*', 'W/tag']),
    'If-None-Match': st.sampled_from(['tag', '"x"', '*', 'W/tag']),
    'If-Modified-Since': st.sampled_from(['date', 'later', 'earlier', 'x']),
    'If-Unmodified-Since': st.sampled_from(['date', 'later', 'earlier', 'x']),
})


class Property(FilesTest):

    def setUp(self):
        super().setUp()
        self.blobs = [
            (self.put(data, f'{size}'), data) for size in SIZES
            for data in [bytes(n * n % 251 for n in range(size))]]

    @settings(deadline=None, max_examples=often(100, 300, 30),
              suppress_health_check=list(HealthCheck))
    @given(st.integers(0, len(SIZES) - 1), st.sampled_from(['GET', 'HEAD']),
           _headers)
    def test_every_answer_is_true(self, which, method, headers):
        blob, data = self.blobs[which]
        headers = self.meant(blob, headers)
        answer = self.get(blob, method, headers)
        self.assertEqual(answer.headers['ETag'], Source(blob).tag)
        if method == 'HEAD' or answer.status in (304, 412, 416):
            self.assertEqual(answer.body, b'')
        else:
            self.assertEqual(int(answer.headers['Content-Length']),
                             len(answer.body))
        getattr(self, f'check_{answer.status}')(answer, data, method, headers)

    def meant(self, blob, headers):
        source = Source(blob)
        words = {'tag': source.tag, 'W/tag': f'W/{source.tag}'}
        for word, later in ('date', 0), ('later', 1), ('earlier', -1):
            words[word] = formatdate(source.modified + later, usegmt=True)
        return {name: words.get(value, value)
                for name, value in headers.items()}

    def check_200(self, answer, data, method, headers):
        self.assertEqual(answer.headers['Content-Length'], str(len(data)))
        if method == 'GET':
            self.assertEqual(answer.body, data)

    def check_206(self, answer, data, method, headers):
        self.assertEqual(method, 'GET')
        tag = answer.headers['ETag']
        self.assertEqual(headers.get('If-Range', tag), tag)
        self.assertEqual(
            [answer.body], self.slices(headers['Range'], data))
        first, last, size = map(int, re.fullmatch(
            r'bytes (\d+)-(\d+)/(\d+)',
            answer.headers['Content-Range']).groups())
        self.assertEqual(
            (answer.body, size), (data[first:last + 1], len(data)))

    def check_416(self, answer, data, method, headers):
        self.assertEqual(answer.headers['Content-Range'],
                         f'bytes */{len(data)}')
        self.assertEqual(self.slices(headers['Range'], data), [])

    def check_304(self, answer, data, method, headers):
        self.assertTrue({'If-None-Match', 'If-Modified-Since'} & set(headers))

    def check_412(self, answer, data, method, headers):
        self.assertTrue({'If-Match', 'If-Unmodified-Since'} & set(headers))

    def slices(self, header, data):
        """What is asked for, by the slices of Python."""
        found = []
        for text in header.partition('=')[2].split(','):
            first, dash, last = text.strip().partition('-')
            if first:
                found.append(data[int(first):][
                    :int(last) - int(first) + 1 if last else None])
            elif last:
                found.append(data[-int(last):] if int(last) else b'')
        return list(filter(None, found))
