"""What a server and its local clients say to each other at the socket where
the data file is handed over.  docs/internals/localreads.rst describes it.
"""

#: The socket has the name of the data file and this.
SUFFIX = '.local'
#: Bytes of the name of a unix socket, on Linux.
LONGEST_NAME = 107

#: What the server sends: with the descriptors, and when the map has retired.
HAND_OVER, LET_GO = b'\1', b'\0'
