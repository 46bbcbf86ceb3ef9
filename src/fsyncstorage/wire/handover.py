"""The messages between a server and its local clients at the socket where the
data file is handed over.  docs/internals/localreads.rst describes them.
"""

#: The socket has the name of the data file with this suffix.
SUFFIX = '.local'
#: Bytes of the name of a unix socket, on Linux.
LONGEST_NAME = 107

#: The server sends these: with the descriptors, and when the map is retired.
HAND_OVER, LET_GO = b'\1', b'\0'
