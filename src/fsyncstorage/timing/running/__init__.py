"""How samples are taken, the same for all measurements.

- sampling      rounds of races between contestants; a run, and its end
- supervisor    one sample in a process of its own; it leaves no process
                behind, also after Ctrl-C
- crew          clients that start together, and what they timed
- population    the objects of a measurement, and where they are kept
- zeosites      ZEO servers with their clients, stock ones and ours
- served        a server in a process of its own, and how clients find it
- latency       the one place that changes how a storage syncs
- machine       the machine and the disk
"""
