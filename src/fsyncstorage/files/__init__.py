"""Large files from a blob to a browser.

`BlobResponse` answers one request, `Application` serves a database, `Filter`
leaves to the front server what another application returns.  They need WebOb
(the extra ``files``); `fsyncstorage.files.zope` needs Zope, and not WebOb.
"""
