"""How many loads were answered by the data file itself, and how many were
left to the server."""

from fsyncstorage.format import UNCERTAIN
from fsyncstorage.format.source import Source


class LocalAnswers:
    """Of the clients in this process, while a test runs."""

    def __init__(self, test):
        self.known = self.uncertain = 0
        load = Source.load_before

        def counted(source, *args):
            answer = load(source, *args)
            self.known += answer is not UNCERTAIN
            self.uncertain += answer is UNCERTAIN
            return answer

        test.patch(Source, load_before=counted)
