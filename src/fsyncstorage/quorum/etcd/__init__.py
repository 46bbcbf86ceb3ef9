"""The log on etcd, by gRPC.

- engine        the log: the calls of the interface, as transactions
- lease         which node holds it, and since when nobody has renewed it
- watch         notices that the head has moved
- keys          the keys of everything, and the bytes of the values
- checks        checks etcd before a node relies on it
- section       the section <quorum>: which node this is, and where its log is
- room          gives room back to etcd, also when it is full
- settings      the operator's settings for etcd
- cluster       the members together: which is asked, and which is believed
- member        one member, its connections, and our name and password
- connection    calls of gRPC
- http2         what a client of gRPC needs of HTTP/2
- bounded       a socket with a deadline, and a limit of bytes
- messages      the questions and the answers
- protobuf      the bytes of a message
- trouble       what goes wrong, and what that means

No thread is started, and no lock is taken: what threads share is changed by
single operations.
"""
