"""The ids that clients choose for their transactions, to copy a database.

Every later id must be greater.  So after an id from the far future, ids no
longer tell the time, and after the greatest possible id no other can follow.
"""

import time

from ZODB.POSException import StorageTransactionError
from ZODB.TimeStamp import TimeStamp

# Seconds that a chosen id may be ahead of the clock.
MOST_AHEAD = 24 * 3600


def check(tid):
    limit = TimeStamp(*time.gmtime(time.time() + MOST_AHEAD)[:6]).raw()
    if tid > limit:
        raise StorageTransactionError(
            f'the transaction id {tid.hex()} is more than'
            f' {MOST_AHEAD // 3600} hours ahead of the clock of this server;'
            ' every later commit would need a greater one. (To copy a database'
            ' that has such ids, use the process that has it open)')
