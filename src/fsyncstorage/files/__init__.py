"""Large files from a blob to a browser.

`BlobResponse` answers one request, `Application` serves a database, `Filter`
hands files of another application over to the front server.  They need WebOb
(the extra ``files``); `fsyncstorage.files.zope` needs Zope, and not WebOb.
"""
