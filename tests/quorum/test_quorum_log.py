"""What an engine promises, of the log in memory; and how that fails."""

import unittest

from .fakelog import Engine
from .fakelog import FakeLog
from .logcontract import Contract
from .logcontract import WithoutALog


class InMemory(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.engine = Engine(None)

    def another(self):
        return FakeLog(self.engine)


class Promises(Contract, InMemory):
    pass


class NoLog(WithoutALog, InMemory):
    pass
