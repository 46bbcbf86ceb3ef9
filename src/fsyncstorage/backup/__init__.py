"""`fsync-backup`: ships a Data.fs that is in use to a store, and restores it.

- store         what a store can do, and its errors
- directory     a store in a directory
- objectstore   a store of S3, GCS or Azure
- opening       which store a name means
- layout        the names of all objects in a store
- head          the head that every object begins with
- bodies        manifests, lists of blobs, documents
- content       puts what may be too large for one object, and reads it
- timeline      one history in a store, in its order
- prefix        the durable prefix of a Data.fs that a server has open
- segment       what is shipped next: whole transactions, and their blobs
- blobs         ships the blobs of a segment, or of a base
- base          ships what a pack has made of all before it
- ahead         reads several objects at a time, in their order
- points        a time, or a tid, that an operator names
- copied        a Data.fs and its blobs that are made again
- restore       makes a copy as of some point
- follow        goes on with one
- verification  is all there, and is it what was shipped?
- prune         removes what no kept point needs
- uploader      ships one segment after the other
- running       ships until it is told to end
- child         the same, in a process of a server
- commandline   the command `fsync-backup`

docs/internals/backup.rst has the layout, the orders, and their reasons.
"""
