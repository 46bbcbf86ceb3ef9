#!/bin/sh
# The entry point of the container.  A variable that is not set, or empty, gets
# a default; zeo.conf, next to this file, uses the variables.  Arguments go to
# fsync-runzeo.
set -eu

export DATA="${DATA:-/data}"
export ZEO_PORT="${ZEO_PORT:-8100}"
export ZEO_READ_ONLY="${ZEO_READ_ONLY:-false}"
export ZEO_INVALIDATION_QUEUE_SIZE="${ZEO_INVALIDATION_QUEUE_SIZE:-100}"
export ZEO_PACK_KEEP_OLD="${ZEO_PACK_KEEP_OLD:-true}"
export FSYNC_DURABILITY="${FSYNC_DURABILITY:-group-commit}"
export FSYNC_SCRUB_RATE="${FSYNC_SCRUB_RATE:-2MB}"
export FSYNC_PACK_GC="${FSYNC_PACK_GC:-on}"
export FSYNC_PACK_RATE="${FSYNC_PACK_RATE:-none}"
export FSYNC_LOCAL_READS="${FSYNC_LOCAL_READS:-off}"

# What is included in <zeo>: a section for TLS, or nothing.
export TLS=/dev/null
if [ -n "${FSYNC_CERTIFICATE:-}" ]; then
    export TLS="${0%/*}/tls.conf"
fi

# Earlier images had their volume there.  If it is still mounted, do not serve
# a new, empty database instead of it.
EARLIER=/srv/zeo/var
if [ -e "$EARLIER/Data.fs" ] && [ ! -e "$DATA/filestorage/Data.fs" ]; then
    echo "start.sh: the data are in $EARLIER, where earlier images had them:" \
        "mount their volume at $DATA, with Data.fs in $DATA/filestorage and" \
        "blobs in $DATA/blobstorage" >&2
    exit 1
fi

# The data are on a volume, which may be empty.
mkdir -p "$DATA/filestorage"

# `exec`: the signal that ends the container has to reach the server.
exec fsync-runzeo -C "${0%/*}/zeo.conf" "$@"
