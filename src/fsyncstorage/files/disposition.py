"""What a browser is told of a file: its type, its name, what to do with it.

Files come from people whom nobody has to trust.  What a browser could run in
the name of the site it shall save, not show: whatever is not known to be
harmless is an attachment.  `nosniff` goes with it: the type that was said is
the one that counts.

Names are written as RFC 6266 and RFC 8187 have it: in ASCII for the old, and
in UTF-8.
"""

import mimetypes
import re
from urllib.parse import quote

UNKNOWN = 'application/octet-stream'

# Without a comma: of a list, browsers take the last one.
_TYPE = re.compile(r'[\w.+-]+/[\w.+-]+( *;[ -+\--~]*)?', re.ASCII)
_SHOWN = re.compile(
    # What ends in +xml could be a page.
    r'((image|audio|video)/(?!svg)[^+]*|text/plain|application/pdf)$')

# What separates directories, could end the quotes, or is not ASCII.
_UNSAFE = re.compile(r'[^ !#$&-.0-9:-\[\]-~]')


def content_type(given, filename):
    """What was given, if it is a type at all, or as the name has it."""
    if given is None and filename:
        guessed, encoding = mimetypes.guess_type(filename)
        given = None if encoding else guessed
    return given if given and _TYPE.fullmatch(given) else UNKNOWN


def content_disposition(filename, type_, attachment=False):
    """An attachment, whatever is asked for, if it could be run."""
    bare = type_.partition(';')[0].strip().lower()
    shown = _SHOWN.match(bare) and not attachment
    return ('inline' if shown else 'attachment') + _parameters(filename)


def _parameters(filename):
    if not filename:
        return ''
    plain = _UNSAFE.sub('_', filename)
    parameters = f'; filename="{plain}"'
    if plain != filename:
        encoded = quote(filename.encode('utf-8', 'replace'), safe='')
        parameters += f"; filename*=UTF-8''{encoded}"
    return parameters
