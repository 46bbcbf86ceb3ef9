"""Large files from a blob to a browser.

`BlobResponse` answers one request, `Application` serves a database, `Filter`
hands files of another application over to the front server.  They need WebOb
(the extra ``files``); `fsyncstorage.files.zope` needs Zope, and not WebOb.

- application   paths to blobs of a database
- filter        files of another application
- zope          a response of Zope
- response      one blob, or a part of it
- source        where the bytes are: a file, or a blob that still comes
- preconditions has the client this revision?
- ranges        which part the client wants
- disposition   shown or saved, and under which name
- handover      files that the front server sends by itself
- bodies        the bytes, in pieces
"""
