"""The log on etcd, by gRPC.

- engine        the log: what the interface asks for, as transactions
- lease         who holds it, and since when nobody has renewed it
- watch         notices that the head has moved
- keys          where everything is, and the bytes that are kept there
- checks        what is looked at before a node relies on this etcd
- section       the section <quorum>: which node this is, and where its log is
- room          what is given back to it, and what is done when it is full
- settings      what the operator says of it
- cluster       the members together: who is asked, who is believed
- member        one of them, its connections, and who we are
- connection    calls of gRPC
- http2         what a client of gRPC needs of HTTP/2
- bounded       a socket within a deadline, and a number of bytes
- messages      the questions and the answers
- protobuf      the bytes of a message
- trouble       what goes wrong, and what that means

No thread is started, and no lock is taken: what threads share is changed by
single operations.
"""
