"""Can other machines reach this server without a certificate?

ZEO knows no passwords.  Whoever can connect reads and writes everything, so a
TCP address that is not of this machine alone should be served over TLS with
client certificates, or in a network where every machine is trusted.
`open_to_others` names the addresses for which neither TLS nor loopback says
so; the server warns of them when it starts.

Nothing here is a permission: docs/security.rst says what is.
"""

import ipaddress
import ssl


def open_to_others(addresses, context):
    """Those of the listening addresses that need neither this machine nor a
    certificate; `context` is the server's SSLContext, or None."""
    if context is not None and context.verify_mode == ssl.CERT_REQUIRED:
        return []
    return [address for address in addresses
            if isinstance(address, tuple) and not _is_loopback(address[0])]


def _is_loopback(host):
    address = ipaddress.ip_address(host.partition('%')[0])  # %: the interface
    mapped = getattr(address, 'ipv4_mapped', None)
    return (mapped or address).is_loopback
