"""How a log and its nodes begin: what an operator does once.

- bootstrap     a log begins with a file
- copying       a node is made of the files of another node
"""
