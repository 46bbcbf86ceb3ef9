"""The log on etcd, by gRPC (the package grpcio).

- engine        the log: the calls of the interface, as transactions
- lease         which node holds it, and since when nobody has renewed it
- keys          the keys of everything, and the bytes of the values
- checks        checks etcd before a node relies on it
- section       the section <quorum>: which node this is, and where its log is
- pace          how fast blobs are staged
- settings      the operator's settings for etcd
- cluster       the members together: which is asked, and which is believed
- member        one member, its connection, and our name and password
- messages      the questions and the answers
- trouble       what goes wrong, and what that means

No thread is started.  What threads share is changed by single operations, but
for the connection to a member, which has a lock (a leaf).
"""

import os

# What grpcio says on the standard error is in its errors, too.
os.environ.setdefault('GRPC_VERBOSITY', 'NONE')
