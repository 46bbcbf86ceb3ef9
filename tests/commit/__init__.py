"""From the vote to the disk: policies, locks, syncs, publishing."""
