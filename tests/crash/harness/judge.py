"""Opens a directory that a power cut left, and says what is wrong with it.

A problem is a kind and words.  The kinds:

refused     it does not open; read-only, it does not say in words why
wrote       to open it read-only changed something
lost        something is missing that was promised to be kept
silent      something that was acknowledged is missing, and the storage does
            not say that this may be
emptied     all that was promised is lost, and it opens as an empty database
hole        a transaction is missing before one that is there
invented    there is a transaction that was never finished
reverted    a pack that returned is taken back
damaged     something is shown that was not stored so
outcome     it says of a transaction that it is committed, and it is not there,
            or the other way round
phantom     lastTransaction is the tid of a transaction that is not there
unreadable  something is shown, and cannot be read
blob        a blob is missing, or is not what was stored, and was promised to
            be kept or is not said to be in doubt
disagrees   opened once more (with the index that the first opening left), or
            read-only before that, or with stock FileStorage, it does not show
            the same
"""

import contextlib
import functools
import os
import typing

from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.FileStorage import FileStorageFormatError
from ZODB.POSException import POSKeyError
from ZODB.utils import tid_repr
from ZODB.utils import z64

from fsyncstorage.storage import outcome
from fsyncstorage.storage.recovery import DamagedFile

from .contents import commit_id_of
from .ledger import REVERTED_PACK

REFUSED = 'refused'
WROTE = 'wrote'
LOST = 'lost'
SILENT = 'silent'
EMPTIED = 'emptied'
HOLE = 'hole'
INVENTED = 'invented'
REVERTED = 'reverted'
DAMAGED = 'damaged'
OUTCOME = 'outcome'
PHANTOM = 'phantom'
UNREADABLE = 'unreadable'
BLOB = 'blob'
DISAGREES = 'disagrees'

# They say in words what is wrong.
CLEAR = FileNotFoundError, DamagedFile, FileStorageFormatError

KINDS = (
    REFUSED, WROTE, LOST, SILENT, EMPTIED, HOLE, INVENTED, REVERTED, DAMAGED,
    OUTCOME, PHANTOM, UNREADABLE, BLOB, DISAGREES)


class Problem(typing.NamedTuple):
    kind: str
    words: str


class Seen(typing.NamedTuple):
    """What a storage shows."""

    transactions: list  # (tid, {oid: data})
    current: dict       # oid -> (data, tid)
    revisions: dict     # (oid, tid) -> data, without undone creations
    blobs: dict         # (oid, tid) -> content
    last_tid: bytes
    wrong_outcomes: list    # of Outcome
    #: It may have lost something; always, if it cannot say so.
    may_have_lost: bool


class Judge:

    def __init__(self, make, policy, ledger, blobs=False, interval=1.0):
        """`make` opens a storage; `policy` is what is held against it, and
        may be 'stock'."""
        self._make = make
        self._policy = policy
        self._ledger = ledger
        self._blobs_stored = blobs
        self._interval = interval
        self._oids = sorted(ledger.oids())

    def verdict(self, directory, standing, thorough=False):
        """The problems of what is in a directory.

        `thorough` opens it also a second time, and with stock FileStorage;
        and read-only, before all else.
        """
        try:
            if thorough and self._policy != 'stock':
                read_only = self._look_read_only(directory)
            else:
                read_only = None
            seen = self._open_and_look(self._make, directory)
            problems = self.compare(seen, standing)
            if thorough and not problems:
                if read_only is not None and read_only != seen:
                    problems.append(Problem(
                        DISAGREES, 'read-only, it did not show the same'))
                for make in self._make, FileStorage:
                    again = self._open_and_look(make, directory)
                    if again[:-1] != seen[:-1]:
                        problems.append(Problem(
                            DISAGREES, f'{make} does not show the same'))
            return problems
        except _Failed as failed:
            return [failed.problem]

    def _look_read_only(self, directory):
        """What is seen; None if it is refused, in words."""
        before = _everything_in(directory)
        try:
            return self._open_and_look(
                functools.partial(self._make, read_only=True), directory)
        except _Failed as failed:
            if not isinstance(failed.__cause__, CLEAR):
                raise
            return None
        finally:
            if _everything_in(directory) != before:
                raise _Failed(Problem(WROTE, 'though it was read-only'))

    # Looking

    def _open_and_look(self, make, directory):
        options = {}
        if self._blobs_stored:
            options['blob_dir'] = os.path.join(directory, 'blobs')
        with _problem(REFUSED):
            storage = make(os.path.join(directory, 'Data.fs'), **options)
        with contextlib.closing(storage), _problem(UNREADABLE):
            return self.look(storage)

    def look(self, storage):
        transactions = [
            (transaction.tid,
             {record.oid: record.data for record in transaction})
            for transaction in storage.iterator()]
        return Seen(
            transactions,
            _readable(storage.load, ((oid,) for oid in self._oids)),
            _readable(storage.loadSerial, (
                (oid, tid) for tid, records in transactions
                for oid in records)),
            self._blobs(storage, transactions),
            storage.lastTransaction(),
            list(self._wrong_outcomes(storage, transactions)),
            getattr(storage, 'may_have_lost', True))

    def _wrong_outcomes(self, storage, transactions):
        """Its answers for those who have lost theirs."""
        if not hasattr(storage, 'outcome'):
            return
        shown = [z64] + [tid for tid, _ in transactions]
        for tid in self._ledger.named & self._ledger.transactions.keys():
            since = max(each for each in shown if each < tid)
            found = storage.outcome(commit_id_of(tid), since)
            if tid in shown:
                is_right = found == (outcome.COMMITTED, tid, '')
            else:
                is_right = found.word != outcome.COMMITTED
            if not is_right:
                yield found

    def _blobs(self, storage, transactions):
        stored = {(oid, transaction.tid)
                  for transaction in self._ledger.transactions.values()
                  for oid in transaction.blobs}

        def content(oid, tid):
            with open(storage.loadBlob(oid, tid), 'rb') as file:
                return file.read()

        return _readable(content, (
            (oid, tid) for tid, records in transactions for oid in records
            if (oid, tid) in stored))

    # Comparing

    def compare(self, seen, standing):
        """The problems, by that of the possible histories which fits best."""
        return min((list(self._against(history, seen, standing))
                    for history in standing.histories(self._ledger)),
                   key=len)

    def _against(self, history, seen, standing):
        if history.state is REVERTED_PACK:
            yield Problem(REVERTED, f'pack {history.pack}')
        history = history.transactions
        tids = [tid for tid, _ in seen.transactions]
        kept = history[:len(tids)]
        yield from self._order(kept, tids, standing)
        yield from self._loss(
            history, tids, standing, seen.may_have_lost)
        if seen.transactions != [item[:2] for item in kept]:
            yield from self._damage(kept, seen.transactions)
        current, revisions, blobs = _expected(kept)
        yield from _differences(DAMAGED, current, seen.current)
        yield from _differences(DAMAGED, revisions, seen.revisions)
        excused = standing.gone_blobs | self._blobs_not_promised(
            blobs, seen, standing)
        yield from _differences(
            BLOB, _without(blobs, excused), _without(seen.blobs, excused))
        for wrong in seen.wrong_outcomes:
            yield Problem(OUTCOME, str(wrong))
        if seen.last_tid != (tids[-1] if tids else z64):
            yield Problem(PHANTOM, tid_repr(seen.last_tid))

    def _blobs_not_promised(self, blobs, seen, standing):
        """Under `none` a blob may be gone, or torn, if that is said; but not
        one of a transaction that asks for more."""
        if self._policy != 'none' or not seen.may_have_lost:
            return set()
        return {(oid, tid) for oid, tid in blobs
                if tid not in standing.kept_blobs | self._ledger.asking}

    def _order(self, kept, tids, standing):
        for expected, tid in zip(kept, tids):
            if expected.tid != tid:
                yield Problem(HOLE if tid in standing.finishing else INVENTED,
                              f'{tid_repr(tid)} follows the one before'
                              f' {tid_repr(expected.tid)}')
                return
        if len(tids) > len(kept):
            yield Problem(INVENTED, f'{tid_repr(tids[len(kept)])} was never'
                          ' finished')

    def _loss(self, history, tids, standing, may_be):
        missing = [transaction.tid for transaction in history
                   if transaction.tid not in tids]
        owed = standing.owed(self._policy)
        lost = [tid for tid in missing if tid in owed]
        for tid in lost:
            yield Problem(LOST, tid_repr(tid))
        if not may_be and any(
                tid in standing.acknowledged for tid in missing):
            yield Problem(SILENT, 'it does not say that anything is missing')
        if lost and not tids:
            yield Problem(EMPTIED, f'{len(lost)} transactions are lost')
        if self._policy == 'interval':
            stake = standing.at_stake(missing)
            if stake > self._interval:
                yield Problem(LOST, f'{stake:.1f} s of commits')

    def _damage(self, kept, transactions):
        for (tid, stored, _), (seen_tid, seen) in zip(kept, transactions):
            if tid == seen_tid and stored != seen:
                yield Problem(DAMAGED, f'transaction {tid_repr(tid)}')


class WithRemedy(Judge):
    """For what is weaker than POSIX: it may refuse to open, if it says which
    file to rename, and opens then."""

    def verdict(self, directory, standing, thorough=False):
        problems = super().verdict(directory, standing, thorough)
        path = os.path.join(directory, 'Data.fs')
        if ([problem.kind for problem in problems] == [REFUSED]
                and f'rename {path}.old to {path}' in problems[0].words):
            os.replace(path + '.old', path)
            return super().verdict(directory, standing, thorough)
        return problems


def _expected(kept):
    """What is shown of these transactions."""
    current, revisions, blobs = {}, {}, {}
    for tid, records, their_blobs in kept:
        for oid, data in records.items():
            if data is None:
                current.pop(oid, None)
            else:
                current[oid] = data, tid
                revisions[oid, tid] = data
        for oid, content in their_blobs.items():
            blobs[oid, tid] = content
    return current, revisions, blobs


def _everything_in(directory):
    """path -> content, None for a directory."""
    found = {}
    for parent, directories, files in os.walk(directory):
        found.update((os.path.join(parent, name), None)
                     for name in directories)
        for name in files:
            path = os.path.join(parent, name)
            with open(path, 'rb') as file:
                found[path] = file.read()
    return found


def _without(items, keys):
    return {key: value for key, value in items.items() if key not in keys}


def _differences(kind, expected, seen):
    for key in expected.keys() | seen.keys():
        if expected.get(key) != seen.get(key):
            what = ('is not what was stored' if key in expected and key in seen
                    else 'is missing' if key in expected
                    else 'should not be there')
            yield Problem(kind, f'{key} {what}')


def _readable(look_up, keys):
    """The results for those keys that there are."""
    results = {}
    for key in keys:
        with contextlib.suppress(POSKeyError):
            results[key if len(key) > 1 else key[0]] = look_up(*key)
    return results


class _Failed(Exception):

    def __init__(self, problem):
        super().__init__(problem)
        self.problem = problem


@contextlib.contextmanager
def _problem(kind):
    """Whatever is raised in here is a problem of that kind."""
    try:
        yield
    except Exception as error:
        words = f'{type(error).__name__}: {error}'
        raise _Failed(Problem(kind, words)) from error
