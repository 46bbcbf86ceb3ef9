"""What is made of samples, with nothing running any more.

- tables        in the terminal
- questions     what tables and pictures answer
- document      all of a run, as it is kept in a file
- otherload     what others did with the processors meanwhile
- estimates     medians, percentiles, and how far a ratio can be trusted
- wording       how numbers are put
"""
