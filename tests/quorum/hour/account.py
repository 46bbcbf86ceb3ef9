"""What has happened: a line for each event, and tables at the end."""

import collections
import os
import time

#: Seconds without a commit that are a gap, and one that is told at once.
GAP, LONG = 0.3, 5
#: Seconds behind the end of a fault in which a gap may still come of it.
AFTER = 4


class Fault:
    """One that has begun."""

    def __init__(self, kind, words):
        self.kind = kind
        self.words = words
        self.begin = time.monotonic()
        self.end = float('inf')

    def may_be_why(self, begin, end):
        return self.begin <= end and self.end + AFTER >= begin


class Kind:

    def __init__(self):
        self.count = 0
        self.alone = self.together = 0.0
        self.refused = self.unknown = 0


class Account:

    def __init__(self, directory):
        self._began = time.monotonic()
        self._file = open(os.path.join(directory, 'events.txt'), 'a')
        self.faults = []
        self._kinds = collections.defaultdict(Kind)
        self._failures = collections.Counter()
        self._totals = collections.Counter()
        self.resources = collections.defaultdict(lambda: (0, 0, 0))

    def say(self, words):
        line = f'{time.monotonic() - self._began:7.1f}  {words}'
        print(line, flush=True)
        self._file.write(line + '\n')
        self._file.flush()

    def begins(self, kind, words):
        self.say(f'{kind}: {words}')
        fault = Fault(kind, words)
        self.faults.append(fault)
        self._kinds[kind].count += 1
        return fault

    def take(self, begin, found, kinds):
        """The notes of a time that began then; `kinds`: of each worker's
        client."""
        times = [begin]
        for note in found:
            kind = kinds[note.worker]
            self._totals[kind, note.kind] += 1
            if note.kind == '+' and kind == 'ours':
                times.append(note.time)
            if note.kind in '-?':
                self._failures[kind, note.kind, note.rest.split(' ')[0]] += 1
                if kind == 'ours':
                    self._count_failure(note)
        times.sort()
        for before, after in zip(times, times[1:], strict=False):
            if after - before > GAP:
                self._count_gap(before, after)
        # Nothing of them can come any more.
        self.faults = [each for each in self.faults
                       if each.end == float('inf')]

    def _count_failure(self, note):
        for fault in self.faults:
            if fault.may_be_why(note.time, note.time):
                kind = self._kinds[fault.kind]
                if note.kind == '-':
                    kind.refused += 1
                else:
                    kind.unknown += 1

    def _count_gap(self, begin, end):
        if end - begin > LONG:
            self.say(f'no commit of ours for {end - begin:.1f} s, from'
                     f' {begin - self._began:.1f} on')
        why = {each.kind for each in self.faults
               if each.may_be_why(begin, end)}
        for kind in map(self._kinds.__getitem__, why or {'(none)'}):
            if len(why) < 2:
                kind.alone = max(kind.alone, end - begin)
            else:
                kind.together = max(kind.together, end - begin)

    def saw(self, name, resources):
        self.resources[name] = tuple(
            map(max, self.resources[name], resources))

    def table(self):
        rows = ['', 'what was done                        times'
                '  longest gap of ours (s)  failed transactions of ours',
                '                                            '
                '  alone     with others    refused   unknown']
        for name, kind in sorted(self._kinds.items()):
            rows.append(
                f'{name:37}{kind.count:5}{kind.alone:9.1f}'
                f'{kind.together:16.1f}{kind.refused:11}{kind.unknown:10}')
        rows += [
            '', 'transactions   acknowledged      read   refused   unknown']
        for kind in 'ours', 'stock':
            rows.append(f'{kind:15}' + ''.join(
                f'{self._totals[kind, each]:{width}}' for each, width in
                (('+', 12), ('=', 10), ('-', 10), ('?', 10))))
        rows += ['', 'failures']
        for (kind, sign, name), count in sorted(self._failures.items()):
            rows.append(f'  {kind:6} {sign} {name:40}{count:7}')
        rows += ['', 'process     at most: MB   threads     files']
        for name, (memory, threads, files) in sorted(self.resources.items()):
            rows.append(f'{name:12}{memory:11}{threads:10}{files:10}')
        return '\n'.join(rows)

    def close(self):
        self._file.close()
