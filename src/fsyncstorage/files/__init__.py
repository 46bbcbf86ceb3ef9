"""Large files from a blob to a browser.

`BlobResponse` answers one request, `Filter` hands files of another application
over to the front server.  They need WebOb (the extra ``files``);
`fsyncstorage.files.zope` needs Zope instead.

- filter        files of another application
- zope          a response of Zope
- response      one blob, or a part of it
- source        where the bytes are: a file, or a blob that is still arriving
- asked         does the client have this revision already, which part it wants
- disposition   shown or saved, and under which name
- handover      files that the front server sends
- bodies        the bytes, in pieces
"""
