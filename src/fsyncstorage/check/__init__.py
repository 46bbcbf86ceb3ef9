"""`fsync-check`: reads a Data.fs, and reports what is damaged.

- commandline   options, the report as JSON, exit codes
- words         the report for people
- salvage       copies what is sound into a new file
- verify        what is checked
- wrapped       unpacks what storage wrappers have compressed
- tails         is it a Data.fs; what is its tail, and what is damage
- findings      what was found
- lost          which objects were lost, by class
- blobfiles     which record each file of a blob directory belongs to
- terminal      what the commands share: files, errors, the progress bar
- info/         `fsync-info`: what takes the space
"""

from .commandline import main

__all__ = ['main']
