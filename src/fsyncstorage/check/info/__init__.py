"""`fsync-info`: what takes the space in a Data.fs, now and in its history.

- commandline   options, exit codes
- tables        the report for people
- document      the report as plain data, which `--json` writes
- survey        reads the file, and adds up
- moments       the times that people write, and those of a file

Memory is bounded: see `survey.Objects`.
"""

from .commandline import main

__all__ = ['main']
