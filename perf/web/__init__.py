"""Files and pages from a database to a browser: who sends, and who asks.

`program` runs an application in a web server: `blobs` has those that send
files, `page` one that makes pages.  `nginx` sends files by itself.  What takes
part in `files` is in `sites`; `load` asks for files, and `memory` looks at the
processes that send them.
"""
