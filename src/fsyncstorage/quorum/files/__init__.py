"""What a node keeps beside its data file.

- state         how far this file is, and to which log it belongs
- unfinished    which of two files a start has, after a swap that was begun
- newblobs      lists of objects whose blobs are about to get their files
"""
