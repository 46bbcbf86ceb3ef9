#!/bin/sh
# The entry point of the container: what is not said, or empty, has a default;
# zeo.conf, beside this file, has the variables.  Arguments go to fsync-runzeo.
set -eu

export DATA="${DATA:-/data}"
export ZEO_PORT="${ZEO_PORT:-8100}"
export ZEO_READ_ONLY="${ZEO_READ_ONLY:-false}"
export ZEO_INVALIDATION_QUEUE_SIZE="${ZEO_INVALIDATION_QUEUE_SIZE:-100}"
export ZEO_PACK_KEEP_OLD="${ZEO_PACK_KEEP_OLD:-true}"
export FSYNC_DURABILITY="${FSYNC_DURABILITY:-group-commit}"
export FSYNC_SCRUB_RATE="${FSYNC_SCRUB_RATE:-2MB}"

# Earlier images had their volume there.  Where it is still mounted, a new
# and empty database beside it would be served in its place.
EARLIER=/srv/zeo/var
if [ -e "$EARLIER/Data.fs" ] && [ ! -e "$DATA/filestorage/Data.fs" ]; then
    echo "start.sh: the data are in $EARLIER, where earlier images had them:" \
        "mount their volume at $DATA, with Data.fs in $DATA/filestorage and" \
        "blobs in $DATA/blobstorage" >&2
    exit 1
fi

# They are on a volume, which may be empty.
mkdir -p "$DATA/filestorage"

# `exec`: the signal that ends the container has to reach the server.
exec fsync-runzeo -C "${0%/*}/zeo.conf" "$@"
