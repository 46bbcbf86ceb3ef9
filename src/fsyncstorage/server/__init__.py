"""The server: stock clients and ours, in two languages at one port.

One event loop thread owns every connection, all sends, and all announcing of
transactions.  Around it, for each storage, are threads that vote and append,
reader threads, and the storage's own flusher.  They hand results to the loop
through its mailbox; the loop never waits for them.

From the outside in:

- runzeo        `fsync-runzeo`: options, signals, opening and closing
- hosting       what the process does while its node of a quorum follows
                another one, and when the node must follow again
- manager       tells the service manager when the server is ready, that it is
                alive, and when it stops
- server        the listening server: connections, all storages together
- listening     the listening sockets, and newcomers until they say something
- door          how many connections there are, and which one is closed first
- connection    one client's byte stream: frames, handshake, calls and replies
- decoding      a client's messages, decoded as plain data
- speech        what is said to a peer, as bytes
- calls         the calls of the protocol, and the types of their arguments
- outbox        one FIFO for each connection, and what must not overtake what
- accounts      how many bytes wait for peers that do not read
- incoming      memory and time for frames that have begun
- session       what one stock client may ask for
- oursession    the same for a client of ours, in another language
- listing       undo logs and histories, as long as an answer may be
- answers       answers that come later than their calls
- loads         loads and blobs for clients of ours, on their streams
- readers       the processes that read for clients of ours, on readers
- readerprocess one of them
- blobstream    blobs on their way to a client
- ballot        one client's transaction: what it stores, and its states
- oneatatime    a storage of others, which takes one transaction at a time
- clients       what each client does, and what it holds, for the operator
- service       one storage that is served: its clients, what is announced
- packs         the packs of one storage, and forecasts of packs
- committer     votes and finishes ballots, side by side, in threads or in the
                loop
- handout       gives the data file to clients on the same machine
- backup        the process that ships a storage while it is served
- fairline      a queue in front of some room, in which peers take turns
- workers       threads for jobs that may wait for the disk, and the order of
                the jobs
- quiet         loggers that limit the lines which a peer can cause
- threads       the way of the loop into a thread, and of a thread to the loop

The contract with the clients is in docs/internals/session.rst.
"""
