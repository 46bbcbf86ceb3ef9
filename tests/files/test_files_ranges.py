"""Ranges and preconditions, case by case."""

import unittest
from email.utils import formatdate

from fsyncstorage.files.asked import range_counts
from fsyncstorage.files.asked import refusal
from fsyncstorage.files.asked import select

TAG = '"1-2"'
TIME = 784111777  # the example of the RFC
DATE = 'Sun, 06 Nov 1994 08:49:37 GMT'
BEFORE, AFTER = (formatdate(seconds, usegmt=True)
                 for seconds in (TIME - 1, TIME + 1))


class Selection(unittest.TestCase):

    def test_one(self):
        for asked, expected in (
                ('0-499', (0, 500)), ('500-', (500, 1000)),
                ('999-999', (999, 1000)), (' 1-2 ', (1, 3)),
                ('-1', (999, 1000)), ('-1000', (0, 1000)),
                ('-2000', (0, 1000)), ('900-5000', (900, 1000)),
                (f'5-{10**19}', (5, 1000))):
            self.assertEqual(select(f'bytes={asked}', 1000), expected)
        self.assertEqual(select('Bytes=0-0', 9), (0, 1))

    def test_of_nothing(self):
        for size, *ranges in (
                (1000, '1000-', '1000-1001', '-0'), (0, '0-', '0-0', '-1')):
            for asked in ranges:
                start, stop = select(f'bytes={asked}', size)
                self.assertEqual(start, stop, asked)

    def test_what_is_ignored(self):
        for header in (None, '', 'bytes', 'bytes=', 'bytes=,', 'bytes=-',
                       'bytes=a-b', 'bytes=5-4', 'bytes=1-2,x', 'bytes=1 -2',
                       'bytes=+1-2', 'bytes=1-2-3', 'bytes=--1', 'lines=1-2',
                       'bytes=\u0661-', f'bytes={10**30}-',
                       # Several of them.
                       'bytes=0-99,200-299', 'bytes=0-0,',
                       'bytes=' + '0-0,' * 1000):
            self.assertIsNone(select(header, 1000), header)


class Refusal(unittest.TestCase):

    def check(self, expected, method='GET', **headers):
        environ = {f'HTTP_{name.upper()}': value
                   for name, value in headers.items()}
        environ['REQUEST_METHOD'] = method
        self.assertEqual(refusal(environ, TAG, TIME), expected)

    def test_if_match(self):
        for value in TAG, '*', f'"x", {TAG}', f'"x",{TAG}':
            self.check(None, If_Match=value)
        for value in '"x"', f'W/{TAG}', '', '1-2', '"1-2':
            self.check(412, If_Match=value)

    def test_if_none_match(self):
        for value in TAG, '*', f'W/{TAG}', f'"x",W/{TAG}':
            self.check(304, If_None_Match=value)
            self.check(304, 'HEAD', If_None_Match=value)
        for value in '"x"', '', 'W/"x"':
            self.check(None, If_None_Match=value)

    def test_dates(self):
        self.check(304, 'HEAD', If_Modified_Since=AFTER)
        self.check(None, If_Modified_Since=BEFORE)
        self.check(None, If_Unmodified_Since=AFTER)
        self.check(412, If_Unmodified_Since=BEFORE)

    def test_which_condition_counts(self):
        self.check(None)
        # A tag says more than a date.
        self.check(None, If_Match=TAG, If_Unmodified_Since=BEFORE)
        self.check(None, If_None_Match='"x"', If_Modified_Since=AFTER)
        # First, what must not have been changed.
        self.check(412, If_Match='"x"', If_None_Match=TAG)
        self.check(412, If_Unmodified_Since=BEFORE, If_None_Match=TAG)
        self.check(304, If_Match=TAG, If_None_Match=TAG)

    def test_the_three_forms_of_a_date(self):
        for date in (DATE, 'Sunday, 06-Nov-94 08:49:37 GMT',
                     'Sun Nov  6 08:49:37 1994'):
            self.check(304, If_Modified_Since=date)
            self.check(None, If_Unmodified_Since=date)

    def test_what_is_no_date_is_ignored(self):
        for date in ('', 'yesterday', '0', 'Sun, 99 Nov 1994 08:49:37 GMT',
                     'Sun, 06 Nov 99999999999 08:49:37 GMT', ',', '1 2 3'):
            self.check(None, If_Modified_Since=date)
            self.check(None, If_Unmodified_Since=date)


class IfRange(unittest.TestCase):

    def test_only_the_very_same(self):
        self.assertTrue(range_counts({}, TAG))
        for value, counts in (
                (TAG, True), (f' {TAG} ', True), (f'W/{TAG}', False),
                ('"x"', False), ('', False), ('*', False),
                (f'{TAG}, "x"', False), (DATE, False), (AFTER, False)):
            self.assertIs(
                range_counts({'HTTP_IF_RANGE': value}, TAG), counts, value)
