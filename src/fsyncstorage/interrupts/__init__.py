"""Steps that an interrupt, or any signal handler, must not leave half done.

- awaiting  a lock for callers that may have to give up while they wait
- trying    a lock for callers that must not wait
"""
