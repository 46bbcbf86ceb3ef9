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

# They are on a volume, which may be empty.
mkdir -p "$DATA/filestorage"

# `exec`: the signal that ends the container has to reach the server.
exec fsync-runzeo -C "${0%/*}/zeo.conf" "$@"
