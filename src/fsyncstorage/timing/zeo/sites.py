"""What can take part in `fsync-time zeo`, by name.

A contestant is a server and its clients.  It is `running` in a directory for
as long as a `with` lasts, which yields a `served.Site`.  Whether it
`can_be_slowed` and `takes_light_clients` decides where it takes part.
"""

from ..servers import zeo as zeosites

CONTESTANTS = {
    contestant.name: contestant for contestant in zeosites.CONTESTANTS}
