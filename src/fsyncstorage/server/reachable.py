"""Can other machines reach this server without a certificate?

ZEO has no passwords: any program that can connect may read and write
everything.  So a TCP address that other machines can reach should be served
over TLS with client certificates, or in a network where every machine is
trusted.  `open_to_others` names the addresses that are neither loopback nor
protected by certificates; the server logs a warning for them when it starts.

This module permits and forbids nothing: docs/security.rst says how to do that.
"""

import ssl

from ..metrics.address import is_loopback


def open_to_others(addresses, context):
    """Return the listening addresses that other machines reach without a
    certificate; `context` is the server's SSLContext, or None."""
    if context is not None and context.verify_mode == ssl.CERT_REQUIRED:
        return []
    return [address for address in addresses
            if isinstance(address, tuple) and not is_loopback(address[0])]
