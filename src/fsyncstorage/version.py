"""The version of fsyncstorage that runs, for programs that show it."""

import functools
import importlib.metadata


@functools.cache
def own_version() -> str:
    try:
        return importlib.metadata.version('fsyncstorage')
    except importlib.metadata.PackageNotFoundError:
        return 'unknown'  # from a source tree, or a bundle, without metadata
