"""How samples are taken, the same for all measurements.

- session       what every measuring run does
- campaign      the order of the samples: rounds of races between contestants
- progress      the bar in the terminal
- machine       the machine and the disk that are measured
- population    the objects of a measurement, and where they are kept
- crew          clients that start together, and what they timed
- supervisor    one sample in a process of its own; it leaves no process
                behind, also after Ctrl-C
- latency       the one place that changes how a storage syncs
- loops         the event loop that ZEO runs on
"""
