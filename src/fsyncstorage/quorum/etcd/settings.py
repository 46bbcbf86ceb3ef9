"""The operator's settings for etcd: its addresses, and our credentials."""

import re
import ssl
import typing
from collections.abc import Sequence

from .trouble import Refused

#: With three members, one may be away.
FEWEST = 3

_ADDRESS = re.compile(
    r'https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})/?')

_PREFIX = re.compile(r'[!-~]{1,200}')


class Settings(typing.NamedTuple):
    #: The client URLs of the members.
    addresses: Sequence[str]
    #: Of all keys of this log.
    prefix: str
    #: Files: the authority, and our certificate with its key.
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    user: str | None = None
    password: str | None = None

    def check(self) -> None:
        if len(self.addresses) < FEWEST:
            raise Refused(
                f'{len(self.addresses)} addresses of etcd: name those of at'
                f' least {FEWEST} members, on machines that do not fail'
                ' together')
        if len(set(self.addresses)) < len(self.addresses):
            raise Refused('an address of etcd is named twice')
        if len({each.split('/')[0] for each in self.addresses}) > 1:
            raise Refused(
                'addresses of etcd with http:// and with https://: either all'
                ' have TLS, or none')
        if not _PREFIX.fullmatch(self.prefix):
            raise Refused(
                f'the prefix {self.prefix!r} is not from 1 to 200 printable'
                ' characters of ASCII, without spaces')
        if (self.user is None) != (self.password is None):
            raise Refused('"user" and "password" belong together')
        if self.key is not None and self.cert is None:
            raise Refused('"key" belongs to "cert"')

    def context(self) -> ssl.SSLContext:
        """For TLS; OSError, ValueError: the files cannot be used."""
        made = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None:
            made.load_cert_chain(self.cert, self.key or self.cert)
        return made


def address(text: str) -> str:
    found = _ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found[2]) < 1 << 16:
        raise Refused(
            f'{text!r} is no address of a member of etcd: its client URL is'
            ' like http://name:2379, or https://name:2379')
    return text
