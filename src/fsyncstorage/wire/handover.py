"""What a server and its local clients agree on at the socket where the data
file is handed over.  docs/internals/localreads.rst describes it.
"""

#: The socket has the name of the data file with this suffix.
SUFFIX = '.local'
#: Bytes of the name of a unix socket, on Linux.
LONGEST_NAME = 107

#: The message that the server sends with the descriptors.
HAND_OVER = b'\1'
