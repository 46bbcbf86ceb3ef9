"""What goes wrong between us and etcd, and what that means.

Whatever a member says, an append may have taken effect.  So each trouble
becomes Unanswered in the end, and the caller tries again.  But some troubles
will not go away, because something was set up wrongly.  `fault` knows these,
and what to change; a start that meets one is refused.
"""

import re

from ..log.interface import Full
from ..log.interface import Unanswered

_LONGEST = 300

# Codes of gRPC.
_CANCELLED, _LATE, _UNAVAILABLE = 1, 4, 14


class Refused(Exception):
    """This engine is not used; it says why, and what to change."""


class Trouble(Exception):
    """A member that was asked did not give the expected answer."""


class Lost(Trouble):
    """There is no answer, or none that can be understood."""


class Late(Lost):
    """There was no answer in time."""


class Untrusted(Lost):
    """No connection was made, because of the certificates."""


class Foreign(Lost):
    """What answers is not etcd, or belongs to another cluster."""


class Said(Trouble):
    """An error of etcd: its code in gRPC, and its text."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(legible(words) or f'an error of gRPC, number {code}')
        self.words = words

    def about(self, *words: str) -> bool:
        return any(each in self.words for each in words)

    @property
    def token(self) -> bool:
        """Another token may help."""
        return self.about(
            'invalid auth token', 'revision of auth store is old',
            'revision in header is old')

    @property
    def full(self) -> bool:
        return self.about('database space exceeded')


def legible(words: str) -> str:
    """The text for a log: on one line, and not long."""
    return ''.join(
        each if each.isprintable() else '?' for each in words[:_LONGEST])


# What texts of grpcio (1.80 to 1.85) about a connection mean; the first one
# that fits counts.
_OF_CONNECTIONS = (
    (r'CERTIFICATE_VERIFY_FAILED|Hostname Verification|Peer name', Untrusted,
     'its certificate is refused. The option "ca" names the file of the'
     ' authority that has signed it, and the address has the name that is in'
     ' it'),
    # (A member with TLS 1.3 refuses it after the handshake.)
    (r'TSI_DATA_CORRUPTED|Secure read|ALERT_(BAD_)?CERTIFICATE|UNKNOWN_CA',
     Untrusted, 'it refuses our certificate. The options "cert" and "key" name'
     ' one that its --trusted-ca-file has signed'),
    (r'[Hh]andshake|failed to connect.*Socket closed', Lost,
     'it ends the connection at once. An address with TLS begins with'
     ' https://, and one without TLS with http://'),
    (r'http1\.x', Foreign,
     'it speaks HTTP/1 only: this is no etcd, or not its client URL'),
    (r'timed out', Late, 'it does not answer in time'),
)


def of_grpc(code: int, words: str) -> Trouble:
    """What a call has ended with: an error of etcd, or of the connection."""
    if code == _CANCELLED and 'Channel closed' in words:
        return Lost('it was stopped')
    if code in (_CANCELLED, _LATE):  # the member may look at its clock first
        return Late('it does not answer in time')
    if code != _UNAVAILABLE or words.startswith('etcdserver'):
        return Said(code, words)
    last = legible(re.sub(r'.*last error: [A-Z_]+: ', '', words))
    for pattern, kind, meaning in _OF_CONNECTIONS:
        if re.search(pattern, words):
            return kind(f'{meaning} ({last})')
    return Lost(f'no connection: {last}')


# What error texts of etcd mean; the first one that fits counts.
_FAULTS = (
    ('authentication failed', 'the options "user" and "password" are wrong'),
    ('user name is empty', (
        'etcd has users: give the options "user" and "password", or a "cert"'
        ' whose CommonName is the name of one')),
    ('authentication is not enabled', (
        'etcd has no users: remove the options "user" and "password", or'
        ' switch users on (etcdctl auth enable)')),
    ('permission denied', (
        'this user (the CommonName of "cert", without "user") may not read and'
        ' write all keys under the prefix: etcdctl role grant-permission ROLE'
        ' readwrite PREFIX/ --prefix=true')),
    ('invalid auth token', 'etcd does not take the token that it gave'),
    ('request is too large', (
        'records have up to 1.4 MB as etcd counts them: set its'
        ' --max-request-bytes to 1572864, or leave it out')),
    ('unknown service', (
        'this is no etcd: name the client URLs of its members')),
)


def fault(trouble: Trouble) -> str | None:
    """What to change, if something was set up wrongly."""
    if isinstance(trouble, Untrusted | Foreign):
        return str(trouble)
    if not isinstance(trouble, Said):
        return None
    for words, meaning in _FAULTS:
        if trouble.about(words):
            return f'{trouble}: {meaning}'
    return None


FULL = ('etcd is full: no commit can be acknowledged. Raise'
        ' --quota-backend-bytes, then etcdctl defrag each member, then etcdctl'
        ' alarm disarm')


def unanswered(troubles: dict[str, Trouble]) -> Unanswered:
    """The error for these troubles of members, by their names."""
    words = '; '.join(
        f'{name}: {fault(trouble) or trouble}'
        for name, trouble in troubles.items())
    for trouble in troubles.values():
        if isinstance(trouble, Said) and trouble.full:
            return Full(f'{FULL} ({words})')
    return Unanswered(words or 'those that have answered are not enough')
