"""Ships a Data.fs that is in use to a store, and restores it.  In work.

- store         what a store can do, and its errors
- directory     a store in a directory
- objectstore   a store of S3, GCS or Azure

docs/internals/backup.rst has the layout, the orders, and their reasons.
"""
