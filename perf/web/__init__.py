"""Files and pages from a database to a browser: servers and requests.

`program` runs one of the `applications` in a web server; `nginx` is a server
that sends files.  The contestants of `files` are in `sites`; `load` sends
requests, and `memory` looks at the processes that send files.
"""
