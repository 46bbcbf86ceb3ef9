"""What a browser is told about a file: its type, its name, what to do with it.

Files come from people whom the site may not trust.  A browser must not run
them in the name of the site: any file that is not known to be harmless is an
attachment, which is saved and not shown.  With `nosniff`, the browser uses the
declared type.

Names are written as in RFC 6266 and RFC 8187: in ASCII for old browsers, and
in UTF-8.
"""

import mimetypes
import re
from urllib.parse import quote

UNKNOWN = 'application/octet-stream'

# Without a comma: browsers take the last type of a list.
_TYPE = re.compile(r'[\w.+-]+/[\w.+-]+( *;[ -+\--~]*)?', re.ASCII)
_SHOWN = re.compile(
    # A type that ends in +xml could be a page.
    r'((image|audio|video)/(?!svg)[^+]*|text/plain|application/pdf)$')

# Characters that separate directories, could end the quotes, or are not ASCII.
_UNSAFE = re.compile(r'[^ !#$&-.0-9:-\[\]-~]')


def content_type(given, filename):
    """The given type; if it is None, the type that the file name suggests.

    UNKNOWN if that is not a valid type.
    """
    if given is None and filename:
        guessed, encoding = mimetypes.guess_type(filename)
        given = None if encoding else guessed
    return given if given and _TYPE.fullmatch(given) else UNKNOWN


def content_disposition(filename, type_, attachment=False):
    """The header; always an attachment if the file could be run."""
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
