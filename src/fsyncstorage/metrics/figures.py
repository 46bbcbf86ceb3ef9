"""The table of all figures: the name of each, and where it is read.

Prometheus gets them from the collector, and people from the page.  Both use
this table, so both show the same for the same moment.
"""

#: A counter only grows until the process ends; a gauge may also fall.
COUNTER, GAUGE = 'counter', 'gauge'

#: Each figure: its kind, its name, where it is (`Reading.at`), and its
#: description.
FIGURES = [
    (COUNTER, 'commits', 'counts.commits',
     'Transactions that are in the file, also while they wait for a sync.'),
    (COUNTER, 'committed_bytes', 'counts.committed_bytes',
     'Bytes that these have in the data file.'),
    (COUNTER, 'conflicts', 'conflicts',
     'Commits that failed because another transaction had changed an object.'),
    (COUNTER, 'conflicts_resolved', 'counts.conflicts_resolved',
     'Objects whose conflicts were resolved in a commit.'),
    (COUNTER, 'loads', 'loads',
     'Objects that clients have loaded, by source: memory, disk (by a thread'
     ' of the server), or readers (processes that read).'),
    (COUNTER, 'invalidations', 'counts.invalidations',
     'Messages that told a client of the transaction of another.'),
    (COUNTER, 'channel_received_bytes', 'counts.channel-bytes-received',
     'Bytes that were received on readers, connections for reading alone.'),
    (COUNTER, 'channel_sent_bytes', 'counts.channel-bytes-sent',
     'Bytes that were sent on readers.'),
    (GAUGE, 'clients', 'counts.connections', 'Clients that are connected.'),
    (GAUGE, 'read_channels', 'counts.channels',
     'Readers of these clients: connections for reading alone.'),
    (GAUGE, 'transactions_waiting', 'waiting',
     'By phase: vote waits for objects that others hold, for room in memory,'
     ' or for a commit that is not published yet; sync is written, and not'
     ' published.'),
    (GAUGE, 'reads_waiting', 'counts.reader-threads-waiting',
     'Reads from the disk that wait for a thread.'),
    (GAUGE, 'data_bytes', 'size.size', 'Size of the data file.'),
    (GAUGE, 'objects', 'size.length', 'Objects in the data file.'),
    (GAUGE, 'last_durable_commit_timestamp_seconds', 'last_durable',
     'Time of the last commit that is durable.'),
    (GAUGE, 'writing_stopped', 'writing_stopped',
     '1 when writing has stopped, as after a failed sync.'),
    (GAUGE, 'quorum_primary', 'leads',
     'Under durability quorum: 1 when this node writes, 0 when it follows.'),
    (GAUGE, 'quorum_epoch', 'quorum.epoch',
     'The number of the epoch, which counts the takeovers.'),
    (GAUGE, 'quorum_record', 'quorum.sequence',
     'The number of the last record of the log that this node has.'),
    (GAUGE, 'quorum_lag_records', 'quorum.lag_records',
     'Records of the log that this node, which follows, does not have yet.'),
    (GAUGE, 'quorum_lag_bytes', 'quorum.lag_bytes',
     'Bytes of the data file that this node does not have yet.'),
    (GAUGE, 'quorum_lease_seconds', 'quorum.lease_left',
     'For how long this node may answer clients if the lease is not renewed.'),
    (GAUGE, 'quorum_silence_seconds', 'quorum.seconds_without_contact',
     'For how long the log has not answered this node.'),
    (GAUGE, 'quorum_log_bytes', 'quorum.log_size',
     'Size of the log: records, their blobs, and blobs of votes that are under'
     ' way, as the node that writes counts it.'),
    (GAUGE, 'quorum_log_limit_bytes', 'log_limit',
     'The size of the log at which commits wait, or a node is left behind.'),
    (GAUGE, 'quorum_standby_silence_seconds', 'standbys_silence',
     'How long ago the node that writes has heard of another one.'),
    (GAUGE, 'quorum_standby_lag_seconds', 'standbys_lag',
     'For how long that node has not kept what this one has.'),
    (GAUGE, 'quorum_standby_in_trouble', 'standbys_in_trouble',
     '1 when that node says that it is in trouble, or nothing was heard of it'
     ' for three leases.'),
    (COUNTER, 'quorum_outages', 'quorum.outages',
     'How often the log has taken nothing for more than a second.'),
    (GAUGE, 'pack_phase_progress_ratio', 'pack',
     'Of the pack that is under way, by phase, from 0 to 1.'),
    (GAUGE, 'last_pack_timestamp_seconds', 'last_pack.ended',
     'When the last pack since the start ended.'),
    (GAUGE, 'last_pack_duration_seconds', 'last_pack.took',
     'How long that pack took.'),
    (GAUGE, 'last_pack_succeeded', 'last_pack.succeeded',
     '0 when it failed or was cancelled.'),
    (GAUGE, 'last_pack_success_timestamp_seconds', 'packed',
     'When the last successful pack since the start ended.'),
    (GAUGE, 'backup_shipped_timestamp_seconds', 'backup.shipped',
     'All that was committed until then is in the store of the backup.'),
    (GAUGE, 'backup_behind_bytes', 'backup.behind',
     'Bytes of the data file that are not in the store yet.'),
    (GAUGE, 'backup_drill_timestamp_seconds', 'backup.drilled',
     'When the last drill ended that restored all, and found it sound.'),
    (GAUGE, 'scrub_progress_ratio', 'scrubbed',
     'How far this pass of the scrub is.'),
    (COUNTER, 'scrub_passes', 'scrub.passes',
     'Passes of the scrub that have ended.'),
    (GAUGE, 'scrub_last_pass_timestamp_seconds', 'scrub.last_pass_ended',
     'When the last pass of the scrub ended.'),
    (GAUGE, 'scrub_damaged_transactions', 'scrub.damaged',
     'Damaged transactions that the scrub has found.'),
    (GAUGE, 'scrub_interruptions', 'scrub.interrupted',
     'How often in succession the scrub was interrupted where it is now.'),
]

#: The label by which a figure is divided, by the name of the figure.
LABELS = {'loads': 'source', 'transactions_waiting': 'phase',
          'pack_phase_progress_ratio': 'phase',
          'quorum_standby_silence_seconds': 'node',
          'quorum_standby_lag_seconds': 'node',
          'quorum_standby_in_trouble': 'node'}

#: Each histogram: its name, its description, and its name in the storage.
HISTOGRAMS = [
    ('sync_duration_seconds', 'How long each sync took.', 'sync_latency'),
    ('commit_duration_seconds',
     'From the request to vote to the answer that it is committed.',
     'commit_latency'),
    ('lock_wait_duration_seconds',
     'How long votes waited for objects that others held, if they waited.',
     'lock_wait'),
]
