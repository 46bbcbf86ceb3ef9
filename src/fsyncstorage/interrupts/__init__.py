"""Steps that an interrupt, or any signal handler, must not leave half done.

- trying    a lock for callers that must not wait
"""
