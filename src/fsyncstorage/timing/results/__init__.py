"""How results are computed from samples, and shown.

- tables        in the terminal
- questions     what tables and pictures answer
- document      all of a run, as it is kept in a file
- otherload     how much others used the processors during the samples
- estimates     medians, percentiles, and how far a ratio can be trusted
- wording       how numbers are written
"""
