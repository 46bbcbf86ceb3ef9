"""Power cuts, in a process: record, cut, build, open, judge.

events      what happens to files, and the marks of the workload between
powercut    what is surely on the disk at a cut, and what may be
tearing     the ways in which unsynced data survive in part
recorder    performs each operation and records it; the Disk that does so, and
            the time, which goes on when it is told
full        the same on a disk that is full
past_seam   the same for what code of ZODB does without our Disk
images      the directories that a cut can leave, all of them or a sample
ledger      what was stored, and what was promised about it
contents    the data of objects
site        drives a storage, recorder and ledger beside it
workloads   what is done with a storage while it is recorded
served      the same through a server, with the marks at its clients
judge       opens an image, and says what is wrong with what it shows
campaign    a workload, its cuts, its images, their verdicts
logged      the same for a node whose commits go to a log, too
history     what clients wrote that each say what they had read
spanning    a server that loses its power again and again, under clients that
            live on, and a verdict on what they wrote

Imports point up this list.
"""
