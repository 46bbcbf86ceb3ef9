"""Storages by URI, for zodburi: a file, and the client of a server.

::

    fsync:///srv/site/Data.fs?blob-dir=/srv/site/blobs&durability=interval
    fsync-zeo://zeo.example.com:8100?blob-dir=cache&blob-cache-size=2GB
    fsync-zeo:///run/zeo.sock?storage=main

The query has the keys of the section <fsyncstorage> or <fsyncclient>, with the
same values and units; `_` may stand for `-`, as in other URIs of zodburi.  So
what a key means, and how it is checked, is said in one place: this module only
writes the text of a section.  A section in a section (<metrics>, <ssl>) has no
place in a query: zconfig:// takes all of a file.

What zodburi knows of a database (`connection_cache_size`, `database_name`) is
left to it.
"""

import io
import re
import typing
from collections.abc import Callable
from urllib.parse import parse_qsl
from urllib.parse import unquote

import ZConfig
import ZODB.config

_KEY = re.compile(r'[a-z][a-z0-9-]*')
#: A line of a section ends there.
_LINE_END = re.compile(r'[\r\n]')
#: An address without a path: ZEO's own clients want a port, too.
_PORT = re.compile(r':\d+\Z')

#: What opens the storage, and options of the database, as texts.
Resolved: typing.TypeAlias = tuple[Callable[[], typing.Any], dict[str, str]]


def file(uri: str) -> Resolved:
    path, options = _parts(uri)
    if not path:
        raise ValueError(f'{uri}: this URI has no path:'
                         f' fsync:///srv/site/Data.fs, say')
    return _resolved(uri, 'fsyncstorage', [('path', path), *options])


def client(uri: str) -> Resolved:
    address, options = _parts(uri)
    if not address.startswith('/') and not _PORT.search(address):
        raise ValueError(
            f'{uri}: this URI has no address of a server:'
            f' fsync-zeo://localhost:8100, or fsync-zeo:///run/zeo.sock, say')
    return _resolved(uri, 'fsyncclient', [('server', address), *options])


def _parts(uri: str) -> tuple[str, list[tuple[str, str]]]:
    """What is before the query, and its keys with their values."""
    _scheme, _, rest = uri.partition('://')
    front, _, query = rest.partition('?')
    return unquote(front, errors='surrogateescape'), parse_qsl(
        query, keep_blank_values=True, strict_parsing=bool(query))


def _resolved(
    uri: str, section: str, options: list[tuple[str, str]],
) -> Resolved:
    lines, of_database = [], {}
    for name, value in options:
        key = name.replace('_', '-').lower()
        if key.startswith('connection-') or key == 'database-name':
            of_database[key.replace('-', '_')] = value
        elif not _KEY.fullmatch(key) or _LINE_END.search(value):
            raise ValueError(f'{uri}: {name!r} is no key with a value')
        else:
            # (A `$` would begin the name of a definition.)
            lines.append(f'{key} {value.replace("$", "$$")}\n')
    try:
        config, _handlers = ZConfig.loadConfigFile(
            ZODB.config.getStorageSchema(),
            io.StringIO(_CONFIGURATION.format(section, ''.join(lines))))
    except ZConfig.DataConversionError as error:
        key, _, _ = lines[error.lineno - _LINES_BEFORE - 1].partition(' ')
        raise ValueError(f'{uri}: {key}: {error.message}') from error
    except ZConfig.ConfigurationError as error:
        raise ValueError(f'{uri}: {error.message}') from error
    return config.storage.open, of_database


#: Of the configuration, before the first key.
_LINES_BEFORE = 3
_CONFIGURATION = """\
%import fsyncstorage
%import fsyncstorage.client
<{0}>
{1}</{0}>
"""
