"""How many commits took one trip to the server, and how many took two."""

from fsyncstorage.server.commitchannel import CommitChannel


class Trips:
    """Of the servers in this process, while a test runs."""

    def __init__(self, test):
        #: Commits that were done.
        self.one = self.two = 0
        finished = CommitChannel._finished

        def counted(channel, transaction, tid, *args, **options):
            if tid is not None:
                if transaction.is_in_one_trip:
                    self.one += 1
                else:
                    self.two += 1
            finished(channel, transaction, tid, *args, **options)

        test.patch(CommitChannel, _finished=counted)
