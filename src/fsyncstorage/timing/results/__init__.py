"""How results are computed from samples, and shown.

- tables        in the terminal
- questions     what tables answer
- document      all of a run, as it is kept in a file
- estimates     percentiles, and how far a ratio can be trusted
- wording       how numbers are written
"""
