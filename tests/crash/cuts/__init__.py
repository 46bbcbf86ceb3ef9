"""Cut connections, in real time: was each client told the truth?

server    a process with the server
client    a process with a client, whose threads commit and say what they heard
mutants   clients and servers that do not tell the truth
outcomes  what they said, held against the file
trial     all of them together, and so many cuts

Imports point up this list.
"""
