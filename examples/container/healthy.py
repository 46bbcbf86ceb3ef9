"""Does the server answer?  ZEO's own question needs neither HTTP nor metrics.

Over TLS it takes a certificate of a client, which is not here: then it is
enough that somebody listens.  (`zeo-nagios` is not used, since it complains
about a database that is empty.)
"""

import json
import os
import socket

PATIENCE = 4


def frame(file):
    return file.read(int.from_bytes(file.read(4), 'big'))


address = '127.0.0.1', int(os.environ.get('ZEO_PORT') or 8100)
with socket.create_connection(address, PATIENCE) as server:
    if not os.environ.get('FSYNC_CERTIFICATE'):
        server.sendall(b'\0\0\0\4ruok')
        with server.makefile('rb') as file:
            frame(file)  # the protocol
            json.loads(frame(file))
