"""How many commits took one trip to the server, and how many took two."""

from fsyncstorage.server.oursession import OurSession


class Trips:
    """Of the servers in this process, while a test runs."""

    def __init__(self, test):
        #: Commits that were done.
        self.one = self.two = 0
        finished = OurSession._finished

        def counted(session, ballot, number, resolved, tid, error):
            if tid is not None:
                if ballot.is_in_one_trip:
                    self.one += 1
                else:
                    self.two += 1
            finished(session, ballot, number, resolved, tid, error)

        test.patch(OurSession, _finished=counted)
