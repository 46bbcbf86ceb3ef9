"""What other processes on the server's machine read themselves.

- handedover    gets the server's files, again after each pack
- blobs         the server's directory of blobs
- answering     the loads of a reader

Local clients use the first two (client.local), the processes that read for a
server all of them (server.readerprocess).  How a file is read by its map:
format.source.
"""
