"""Faults at random, for as long as one likes: two nodes on real etcd.

    python -m tests.quorum.hour SECONDS [--seed N]

Three members, two nodes (fsync-runzeo) and clients, ours and stock ones, are
processes in namespaces of the network, each with an address of its own: so
each link can be cut, in each direction.  Clients move money between accounts.
Faults, chosen by the seed, come to members, nodes and links.  Now and then all
is healed, and what was promised is checked.

    __main__    the command, and the namespaces that it runs in
    network     hosts, and the links between them
    program     a process on a host
    members     the members of etcd: also damaged and replaced
    nodes       the nodes: also with a disk that is full
    load        a process that commits, and notes what was acknowledged
    clients     what the run sees of those processes
    bank        the objects that they change
    notes       what was acknowledged, and what was refused
    faults      what is done to whom, one function for each kind
    checking    what must hold when all was healed
    account     what has happened: lines, totals
    world       all that runs, and how it is healed
    run         the order of all this

What is checked is in `checking`, and by the clients at each transaction that
only reads.  A violation stops the run: its directory is kept, with what
everybody has said, and the last events.

It needs Linux, `ip` (iproute2), `unshare`, `nsenter`, `mount` and `umount`
(util-linux), and etcd 3.6.  It changes nothing outside of its
directory: all namespaces, mounts and processes end with it.  The choice of the
faults depends on the seed alone; what comes of them depends on time.
"""
