"""Files and pages from a database to a browser: servers and requests.

`program` runs one of the `applications` in a web server, and `nginx` sends
files by itself.  What takes part in `files` is in `sites`; `load` asks, and
`memory` looks at the processes that send.
"""
