"""python -m tests.storage.histories NUMBER [--from SEED] [--old CHECKOUT]"""

import argparse

from .compare import compare
from .compare import pair


def main():
    parser = argparse.ArgumentParser(prog='python -m tests.storage.histories')
    parser.add_argument('number', type=int, help='of histories')
    parser.add_argument('--from', dest='first', type=int, default=0,
                        metavar='SEED', help='the seed of the first one')
    parser.add_argument('--old', metavar='CHECKOUT',
                        help='compare with the storage of another checkout;'
                        ' without, with FileStorage')
    arguments = parser.parse_args()
    answers = 0
    with pair(arguments.old) as players:
        for seed in range(arguments.first,
                          arguments.first + arguments.number):
            answers += compare(seed, *players)
    print(f'{arguments.number} histories from seed {arguments.first}:'
          f' {answers} answers and files, all the same')


main()
