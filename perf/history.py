"""What others measured long ago, for comparison.

The figures are in `history.json`, each with who measured it, when and on what.
"""

import json
import pathlib

_ALL = json.loads(pathlib.Path(__file__).with_suffix('.json').read_text())

#: Transactions a second, by contestant: of one thread.
COMMITS_2004 = _ALL['commits_2004']

#: Seconds, by objects in a transaction, storage and number of clients: of a
#: write, and of a cold, hot and steamin read.
ZEO_2009 = _ALL['zeo_2009']
