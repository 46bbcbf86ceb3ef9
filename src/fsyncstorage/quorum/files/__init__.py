"""What a node keeps beside its data file.

- state         how far this file is, and which log it is of
- unfinished    of two files, which one a start has
- newblobs      lists of objects whose blobs are about to get their files
"""
