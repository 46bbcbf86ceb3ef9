"""A process that plays histories for the storage of its own path.

It is given a kind of storage and a directory as arguments, and seeds as lines;
it answers each with a line of JSON: the transcript, or null if the history
came to no end.
"""

import json
import logging
import os
import random
import shutil
import sys
import traceback
import warnings

from history import History

POLICIES = 'none', 'interval', 'group-commit', 'per-commit', 'two-sync'


def options_of(seed, directory, ours):
    """What the storage of a history is opened with."""
    choose = random.Random(f'options of {seed}').choice
    options = {
        'quota': choose((None, None, None, 20000)),
        'pack_gc': choose((True, False, False)),
        'pack_keep_old': choose((True, False)),
    }
    if choose((True, False)):
        options['blob_dir'] = os.path.join(directory, 'blobs')
    own = {
        'durability': choose(POLICIES),
        'checksums': choose((True, True, True, False)),
        'sync_interval': '1h',
    }
    return {**options, **(own if ours else {})}


def player(kind, directory):
    """The function that plays a seed."""
    if kind == 'stock':
        from ZODB.FileStorage import FileStorage as Storage
    else:
        from fsyncstorage import FsyncStorage as Storage

    def play(seed):
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(directory)
        options = options_of(seed, directory, kind != 'stock')
        if kind == 'unsealed':  # to be compared with stock
            options['checksums'] = False
        return History(
            seed, directory, Storage, options, kind == 'ours').play()

    return play


def main():
    logging.disable()
    warnings.simplefilter('ignore')
    # Files that are to be the same have the same commit ids.
    os.urandom = lambda count: b'x' * count
    play = player(*sys.argv[1:])
    for line in sys.stdin:
        try:
            transcript = play(int(line))
        except Exception:
            traceback.print_exc()
            transcript = None
        print(json.dumps(transcript), flush=True)


if __name__ == '__main__':
    main()
