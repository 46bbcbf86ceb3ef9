"""How many loads were answered by the data file itself, and how many were
left to the server."""

from fsyncstorage.client.local import NOT_KNOWN
from fsyncstorage.client.local import Source


class LocalAnswers:
    """Of the clients in this process, while a test runs."""

    def __init__(self, test):
        self.known = self.not_known = 0
        load = Source.load_before

        def counted(source, *args):
            answer = load(source, *args)
            self.known += answer is not NOT_KNOWN
            self.not_known += answer is NOT_KNOWN
            return answer

        test.patch(Source, load_before=counted)
