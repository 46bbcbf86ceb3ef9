"""A site and its backup are killed at any moment, again and again, while the
file is packed: what is restored is the site's, and stays restorable.
"""

import random

from ..often import often
from ..support import TestCase
from .rpo import Lives

KILLS = often(4, 60)
#: One pack in so many commits.
PACKS = 100


class Killed(TestCase):

    level = 2

    def test_again_and_again(self):
        lives, chance = Lives(self.directory, PACKS), random.Random(1)
        for number in range(KILLS):
            lives.live(number, chance.random())
            lives.judge()
        lives.check_points()
