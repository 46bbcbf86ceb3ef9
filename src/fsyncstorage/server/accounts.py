"""What is held in memory for peers that do not take it: of each, and of all.

A peer that reads costs little: what is sent to it is with the system at
once.  What it does not take waits, in its transport and in its outbox, and is
counted here in bytes.  Two bounds hold:

- When one peer leaves more than `MOST_OF_ONE` lying, and more comes, it is
  cut off.  (An answer of any size can be taken: what gathers behind it is
  limited.)
- When all together leave more than `MOST_OF_ALL` lying, the one that holds
  most is cut off, and so on until it is less.  One that is alone may hold
  more.

Whoever makes what is sent asks before that whether there is room (workers,
connection, channel); so a peer that reads, however slowly, comes to neither
bound by its own requests.  What is made without being asked for,
announcements, comes to them at last.

All of it belongs to the event loop.
"""

# While so many bytes wait for a peer, no more than one thing is made for it.
ENOUGH = 16 << 20
# Bytes behind which nothing more may gather, for one peer and for all.
MOST_OF_ONE = 256 << 20
MOST_OF_ALL = 512 << 20


class Accounts:
    """Of all peers of a server."""

    def __init__(self):
        self.held = 0
        self._holders = set()  # whose account is not empty

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
            account.look()  # what was taken meanwhile counts no more
        while self.held > MOST_OF_ALL and len(self._holders) > 1:
            max(self._holders, key=lambda account: account.held).cut_off()


class Account:
    """Of one peer, which has `unsent` to ask how many bytes its transport
    holds, and `cut_off`."""

    #: The transport does not want more at the moment.
    full = False
    #: All bytes that wait for the peer; and those that are not even sent.
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
        """See what is there: the peer may have taken some of it."""
        unsent = self._peer.unsent() if self.full else 0
        self._change(unsent + self._kept_back - self.held)

    def sent(self, size):
        """So much went to the transport, while that was full."""
        if self.held > MOST_OF_ONE:
            self.look()
            if self.held > MOST_OF_ONE:
                self.cut_off()
                return
        self._change(size)

    def keep_back(self, message):
        """It has to wait for something else before it is sent."""
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
        """The peer has gone, and what waited for it."""
        self._change(-self.held)
        self._closed = True
