"""What has happened: a line for each event, and totals at the end."""

import collections
import os
import time

#: Seconds without a commit that are told.
LONG = 5


class Account:

    def __init__(self, directory):
        self._began = time.monotonic()
        self._file = open(os.path.join(directory, 'events.txt'), 'a')
        self._faults = collections.Counter()
        self._transactions = collections.Counter()

    def say(self, words):
        line = f'{time.monotonic() - self._began:7.1f}  {words}'
        print(line, flush=True)
        self._file.write(line + '\n')
        self._file.flush()

    def begins(self, kind, words):
        self.say(f'{kind}: {words}')
        self._faults[kind] += 1

    def take(self, begin, found, kinds):
        """The notes of a time that began then; `kinds`: of each worker's
        client."""
        times = [begin]
        for note in found:
            kind = kinds[note.worker]
            self._transactions[kind, note.kind] += 1
            if note.kind == '+' and kind == 'ours':
                times.append(note.time)
        times.sort()
        for before, after in zip(times, times[1:], strict=False):
            if after - before > LONG:
                self.say(f'no commit of ours for {after - before:.1f} s, from'
                         f' {before - self._began:.1f} on')

    def table(self):
        rows = ['', 'what was done                        times']
        for name, count in sorted(self._faults.items()):
            rows.append(f'{name:37}{count:5}')
        rows += [
            '', 'transactions   acknowledged      read   refused   unknown']
        for kind in 'ours', 'stock':
            rows.append(f'{kind:15}' + ''.join(
                f'{self._transactions[kind, each]:{width}}' for each, width in
                (('+', 12), ('=', 10), ('-', 10), ('?', 10))))
        return '\n'.join(rows)

    def close(self):
        self._file.close()
