"""How long to wait before an address is tried again.

All addresses of a client are tried at once, each by itself, and the first
server that fits is used.  An address is tried at once when the connection that
was used ends; what comes of it decides when it is tried next:

- It was not reached, or the connection ended before it was of use, or soon
  after that: after `FIRST` seconds, and after twice as long each time in a
  row, since a connection was of use.  A server that takes over is found by its
  clients soon, and one that is away for long is not asked all the time.
- The server has refused the client, or was refused by it: after a time that is
  long, since it will take someone to change that.

All of these vary at random, so that the clients of a server do not come all
together when it is back.
"""

import random

#: Seconds.
FIRST = 0.1
LEAST = 0.01  # also where a test is in a hurry


class Addresses:

    def __init__(self):
        self._failed = {}  # address -> tries that have failed in a row
        self._waits = {}   # address -> seconds, until the next one is made
        self._random = random.Random()

    def wait(self, address):
        """Seconds to wait, from now on, before it is tried."""
        return self._waits.pop(address, 0)

    def was_of_use(self):
        """A connection has ended that was used: another server may take over.
        """
        self._failed.clear()

    def failed(self, address, most):
        """It was not reached, or has ended at once; wait `most` seconds at
        most."""
        times = self._failed.get(address, 0)
        self._failed[address] = times + 1
        longest = max(LEAST, min(FIRST * 2 ** min(times, 20), most))
        self._waits[address] = longest * self._random.uniform(0.5, 1)

    def refused(self, address, seconds):
        self._waits[address] = seconds + self._random.random()
