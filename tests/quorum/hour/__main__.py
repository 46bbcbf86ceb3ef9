"""python -m tests.quorum.hour SECONDS [--seed N]"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile

from .. import etcdcluster

#: All that this starts, mounts and connects is in namespaces of its own.
UNSHARE = 'unshare --net --mount --pid --fork --kill-child --mount-proc'
NEEDED = 'unshare', 'nsenter', 'ip', 'mount', 'umount'


def main():
    options = arguments().parse_args()
    if not options.inside:
        why = why_not()
        if why is not None:
            sys.exit(why)
        for stream in sys.stdout, sys.stderr:
            stream.flush()
        os.execvp('unshare', [
            *command(), sys.executable, '-m', 'tests.quorum.hour',
            '--inside', *sys.argv[1:]])
    signal.signal(signal.SIGTERM, lambda *args: sys.exit(143))
    from .run import Run
    directory = tempfile.mkdtemp(prefix='hour-')
    if Run(directory, options.seed).run(options.seconds):
        shutil.rmtree(directory)
        return 0
    print(f'everything is kept in {directory}')
    return 1


def arguments():
    parser = argparse.ArgumentParser(
        prog='python -m tests.quorum.hour',
        description='Two nodes on real etcd, and faults at random.')
    parser.add_argument('seconds', type=float, metavar='SECONDS')
    parser.add_argument('--seed', type=int,
                        default=random.randrange(1_000_000))
    parser.add_argument('--inside', action='store_true',
                        help=argparse.SUPPRESS)
    return parser


def command():
    """Whoever is not root becomes it, in a namespace of users."""
    more = [] if os.getuid() == 0 else ['--user', '--map-root-user']
    return [*UNSHARE.split(), *more]


def why_not():
    """Why it cannot run here; None: it can."""
    if etcdcluster.program() is None:
        return etcdcluster.WITHOUT
    missing = [each for each in NEEDED if shutil.which(each) is None]
    if missing:
        return f'there is no {missing[0]} here'
    if os.system(f'{" ".join(command())} true 2>/dev/null'):
        return 'this user may not make namespaces'
    return None


if __name__ == '__main__':
    sys.exit(main())
