"""Hostile peers against a real server: what it costs, and what is left.

`python -m tests.server.hostile --minutes 10` sets up `fsync-runzeo`, lets each
of the `attacks` on it, one after the other and then all together, while an
honest client beside them loads and commits, and tells how much memory the
server took at most, how long the honest client waited at most, and whether a
connection, a thread or a file was left when they had gone.

The enemies have one processor less than the machine has (siege.PROCESSES): a
load is bounded, and what is measured is what the server does to the others.
On a machine that is busy with something else, the times say nothing.

The tests have a short form (tests/server/test_hostile.py), without the times.
"""
