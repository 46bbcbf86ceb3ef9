"""Large files from a blob to a browser.

`BlobResponse` answers one request, `Filter` hands files of another application
over to the front server.  They need WebOb (the extra ``files``);
`fsyncstorage.files.zope` needs Zope instead.

- filter        files of another application
- zope          a response of Zope
- response      one blob, or a part of it; shown or saved, under which name
- asked         does the client have this revision already, which part it wants
- handover      files that the front server sends
- source        the bytes: of a file, or of a blob that is still arriving
"""
