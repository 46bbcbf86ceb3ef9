"""The figures of a client, for any library that shows them.

Each figure has a kind, a name and a description.  The names are those of
`FsyncClient.stats()`.  Figures of something that a client does not have (a
blob cache, for example) are missing there.
"""

COUNTER, GAUGE = 'counter', 'gauge'

PREFIX = 'fsyncclient_'

FIGURES = [
    (GAUGE, 'connected', 'Whether there is a server.'),
    (COUNTER, 'cache_hits', 'Loads that were answered from the cache.'),
    (COUNTER, 'cache_misses', 'Loads for which the server was asked.'),
    (COUNTER, 'cache_evictions',
     'Objects that were dropped from the cache for others.'),
    (GAUGE, 'reads_locally',
     'Whether objects are read from the data file, without the server.'),
    (COUNTER, 'local_reads', 'Loads that were answered from the data file.'),
    (COUNTER, 'commits_repeated',
     'How often a commit was sent again, to the next node of a log.'),
    (GAUGE, 'blob_cache_bytes', 'Bytes of the blobs in the blob cache.'),
    (COUNTER, 'blob_cache_evictions',
     'Blobs that were removed from the blob cache for others.'),
]

#: A histogram, by `FsyncClient.load_times()`.
TIMES = 'load_duration_seconds'
TIMES_SAY = ('How long loads took that the cache did not answer, by what did:'
             ' the data file, a read channel or the connection.')
