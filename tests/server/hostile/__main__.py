"""python -m tests.server.hostile --minutes 10: hostile peers, and what they
cost.
"""

import argparse
import os
import tempfile
import time

from . import attacks
from .siege import Siege

MB = 1 << 20


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--minutes', type=float, default=10)
    parser.add_argument('--only', nargs='*', default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='fsyncstorage-') as directory:
        siege = Siege(directory)
        try:
            tell(siege, options)
        finally:
            status = siege.close()
        print(f'the server ended with {status};'
              f' its log has {os.path.getsize(siege.server.log)} bytes')


def tell(siege, options):
    print(f'base {siege.base // MB} MB')
    time.sleep(1)
    # All threads of the pools may have been started, as each is needed once.
    files, threads = siege.server.files(), siege.server.threads()
    stages = [[attack] for attack in attacks.BEFORE + attacks.AFTER
              if not options.only or attack.__name__ in options.only]
    if not options.only:
        stages.insert(len(attacks.BEFORE), attacks.BEFORE)
        stages.append(attacks.AFTER)
    seconds = options.minutes * 60 / (len(stages) + 2)
    for stage in stages:
        name = ' and '.join(attack.__name__ for attack in stage)
        if len(stage) > 1:
            name = 'all before' if stage is attacks.BEFORE else 'all after'
        begun = time.monotonic()
        peak = siege.attack(
            stage, seconds * (2 if len(stage) > 1 else 1))
        wait, what, _ = siege.worst(begun)
        print(f'{name:24} memory {(peak - siege.base) // MB:5} MB more;'
              f' the honest client waited {wait:6.3f} s at most, for a'
              f' {what}', flush=True)
    left = siege.rest(files + 1, threads + 9)
    print(f'left: files {left[0]} (before {files}),'
          f' threads {left[1]} (before {threads}), memory'
          f' {(siege.server.memory() - siege.base) // MB} MB more')
    print(f'honest client: {len(siege.honest.waits)} calls,'
          f' error {siege.honest.error!r}')


if __name__ == '__main__':
    main()
