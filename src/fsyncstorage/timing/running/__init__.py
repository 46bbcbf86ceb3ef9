"""How samples are taken, whatever is measured.

- measurement   what every measuring run does
- campaign      which sample is taken when: rounds of races between contestants
- progress      the bar in the terminal
- machine       what the measurements were made on
- population    the objects of a measurement, and where they are kept
- crew          clients that start together, and what they timed
- supervisor    one sample in a process of its own, and the end of everything
                that it starts: no process is left behind, Ctrl-C included
- latency       the one place that changes how a storage syncs
- loops         the event loop that ZEO runs on
"""
