"""The one protocol between client and server, and its client, in work.

Only the tests import it.  When all of it is there, it takes the place of
client/, and of what serves our clients in server/ and wire/.

    Cache (cache)           objects on disk, and what may be kept there
      Pending (pending)     loads without an answer
      CacheFile (cachefile) the file: a log, which is a ring of segments
"""
