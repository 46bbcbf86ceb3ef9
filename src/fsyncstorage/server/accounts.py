"""How many bytes wait in memory for peers that do not read them: in their
transports and outboxes.

When more than `MOST_OF_ONE` bytes wait for one peer, and more is to be sent,
the peer is cut off.  (A single answer may have any size: only what gathers
after it is limited.)  When more than `MOST_OF_ALL` wait for all together, the
peer with the most is cut off, then the next; but not one that is alone.

The code that makes an answer first asks whether there is room.  So requests
never bring a peer that reads to a bound.  Announcements can.

All of it belongs to the event loop.
"""

# While this many bytes wait for a peer, one answer at a time is made for it.
ENOUGH = 16 << 20
# When this many bytes wait, nothing more may be added: for one peer, for all.
MOST_OF_ONE = 256 << 20
MOST_OF_ALL = 512 << 20


class Accounts:
    """The accounts of all peers of a server."""

    def __init__(self):
        self.held = 0
        self._holders = set()  # accounts that are not empty

    def note(self, account, change):
        self.held += change
        if account.held:
            self._holders.add(account)
        else:
            self._holders.discard(account)
        if self.held > MOST_OF_ALL and change > 0:
            self._relieve()

    def _relieve(self):
        for account in list(self._holders):
            account.look()  # its peer may have read some since
        while self.held > MOST_OF_ALL and len(self._holders) > 1:
            max(self._holders, key=lambda account: account.held).cut_off()


class Account:
    """The account of one peer.

    The peer has two methods: `unsent` returns how many bytes its transport
    holds, `cut_off` ends the connection.
    """

    #: The transport does not take more at the moment.
    full = False
    #: All bytes that wait for the peer; and those still in its outbox.
    held = 0
    _kept_back = 0
    _closed = False

    def __init__(self, accounts, peer):
        self._accounts = accounts
        self._peer = peer

    def paused(self):
        self.full = True
        self.look()

    def resumed(self):
        self.full = False
        self.look()

    def look(self):
        """Count again: the peer may have read some of it."""
        unsent = self._peer.unsent() if self.full else 0
        self._change(unsent + self._kept_back - self.held)

    def sent(self, size):
        """This many more bytes wait for the peer."""
        if self.held > MOST_OF_ONE:
            self.look()
            if self.held > MOST_OF_ONE:
                self.cut_off()
                return
        self._change(size)

    def keep_back(self, message):
        """The message waits in the outbox."""
        self._kept_back += len(message)
        self.sent(len(message))

    def let_go(self, message):
        self._kept_back -= len(message)
        self._change(-len(message))

    def _change(self, change):
        if change and not self._closed:
            self.held += change
            self._accounts.note(self, change)

    def cut_off(self):
        self.close()
        self._peer.cut_off()

    def close(self):
        """The peer is gone, and nothing waits for it any more."""
        self._change(-self.held)
        self._closed = True
