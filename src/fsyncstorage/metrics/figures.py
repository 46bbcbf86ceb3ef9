"""The table of all figures: what each is called, and where it is read.

Prometheus gets them from the collector, and people from the page; so both say
the same of the same moment.
"""

from collections.abc import Callable
from typing import Any

from .shown import Reading

#: What only grows until the process ends, and what does not.
COUNTER, GAUGE = 'counter', 'gauge'

#: Of each figure: its kind, its name and what it says; how it is read, None
#: where a storage has none; and the label by which it is divided, if it is.
FIGURES: list[tuple[str, str, str, Callable[[Reading], Any],
                    str | None]] = [
    (COUNTER, 'commits',
     'Transactions that were committed.',
     lambda of: of.any_of('commits'), None),
    (COUNTER, 'committed_bytes',
     'Bytes that these have in the data file.',
     lambda of: of.any_of('committed_bytes'), None),
    (COUNTER, 'conflicts',
     'Commits that failed because another transaction had changed an object.',
     lambda of: of.conflicts, None),
    (COUNTER, 'conflicts_resolved',
     'Objects whose conflicts were resolved in a commit.',
     lambda of: of.any_of('conflicts_resolved'), None),
    (COUNTER, 'loads',
     'Objects that clients have loaded, by where they were read from.',
     lambda of: of.loads, 'source'),
    (COUNTER, 'invalidations',
     'Messages that told a client of the transaction of another.',
     lambda of: of.any_of('invalidations'), None),
    (COUNTER, 'channel_received_bytes',
     'Bytes that came on read channels.',
     lambda of: of.any_of('channel-bytes-received'), None),
    (COUNTER, 'channel_sent_bytes',
     'Bytes that were sent on read channels.',
     lambda of: of.any_of('channel-bytes-sent'), None),
    (GAUGE, 'clients',
     'Clients that are connected.',
     lambda of: of.any_of('connections'), None),
    (GAUGE, 'read_channels',
     'Read channels of these clients.',
     lambda of: of.any_of('channels'), None),
    (GAUGE, 'transactions_waiting',
     'Transactions that wait for their vote, or for a sync.',
     lambda of: of.waiting, 'phase'),
    (GAUGE, 'reads_waiting',
     'Reads from the disk that wait for a thread.',
     lambda of: of.any_of('reader-threads-waiting'), None),
    (GAUGE, 'data_bytes',
     'Size of the data file.',
     lambda of: of.size.get('size'), None),
    (GAUGE, 'objects',
     'Objects in the data file.',
     lambda of: of.size.get('length'), None),
    (GAUGE, 'last_durable_commit_timestamp_seconds',
     'Time of the last commit that is durable.',
     lambda of: of.last_durable, None),
    (GAUGE, 'writing_stopped',
     'Whether writing has stopped, as after a failed sync.',
     lambda of: (of.storage['writing_stopped'] is not None
                 if 'writing_stopped' in of.storage else None), None),
    (GAUGE, 'pack_phase_progress_ratio',
     'How far the pack that is under way is in its phase.',
     lambda of: of.pack, 'phase'),
    (GAUGE, 'last_pack_timestamp_seconds',
     'When the last pack since the start ended.',
     lambda of: of.last_pack and of.last_pack[0], None),
    (GAUGE, 'last_pack_duration_seconds',
     'How long that pack took.',
     lambda of: of.last_pack and of.last_pack[1], None),
    (GAUGE, 'last_pack_succeeded',
     'Whether that pack did what it should: it did not fail, and was not'
     ' cancelled.',
     lambda of: of.last_pack and of.last_pack[2], None),
    (GAUGE, 'last_pack_success_timestamp_seconds',
     'When the last pack since the start ended that did what it should.',
     lambda of: of.packed, None),
    (GAUGE, 'scrub_progress_ratio',
     'How far this pass of the scrub is.',
     lambda of: of.scrubbed, None),
    (COUNTER, 'scrub_passes',
     'Passes of the scrub that have ended.',
     lambda of: of.scrub.get('passes'), None),
    (GAUGE, 'scrub_last_pass_timestamp_seconds',
     'When the last pass of the scrub ended.',
     lambda of: of.scrub.get('last_pass_ended'), None),
    (GAUGE, 'scrub_damaged_transactions',
     'Damaged transactions that the scrub has found.',
     lambda of: of.scrub.get('damaged'), None),
    (GAUGE, 'scrub_interruptions',
     'How often in succession the scrub was interrupted where it is now.',
     lambda of: of.scrub.get('interrupted'), None),
]

#: Of each histogram: its name, what it says, and what its storage calls it.
HISTOGRAMS = [
    ('sync_duration_seconds', 'How long each sync took.', 'sync_latency'),
    ('commit_duration_seconds',
     'From the request to vote to the answer that it is committed.',
     'commit_latency'),
    ('lock_wait_duration_seconds',
     'How long votes waited for objects that others held, if they waited.',
     'lock_wait'),
]
