"""How long to wait before an address is tried again.

A client tries all its addresses at once, independently of each other, and uses
the first server that fits.  When the connection that was used ends, all
addresses are tried at once.  The result of a try decides when the address is
tried next:

- It was not reached, or the connection ended before the client could use it,
  or soon after that: after `FIRST` seconds, and twice as long after each
  further failure in a row.  A connection that was of use ends the row.  So
  clients soon find a server that takes over, and do not try one that is away
  for long all the time.
- The server has refused the client, or the client the server: after a long
  time, since somebody must change something first.

All these times vary at random, so that the clients of a server do not all
connect at the same moment when it is back.
"""

import random

#: Seconds.
FIRST = 0.1
LEAST = 0.01  # also in tests with very short times


class Addresses:

    def __init__(self):
        self._failed = {}  # address -> tries that have failed in a row
        self._waits = {}   # address -> seconds until its next try
        self._random = random.Random()

    def wait(self, address):
        """Seconds to wait, from now on, before the address is tried."""
        return self._waits.pop(address, 0)

    def was_of_use(self):
        """A connection that was used has ended.

        Failures are counted anew: another server may take over.
        """
        self._failed.clear()

    def failed(self, address, most):
        """It was not reached, or the connection ended at once; wait at most
        `most` seconds."""
        times = self._failed.get(address, 0)
        self._failed[address] = times + 1
        longest = max(LEAST, min(FIRST * 2 ** min(times, 20), most))
        self._waits[address] = longest * self._random.uniform(0.5, 1)

    def refused(self, address, seconds):
        self._waits[address] = seconds + self._random.random()
