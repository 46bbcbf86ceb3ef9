"""What an interrupt, or the handler of any signal, must not leave half done.

- trying    a lock for callers that must not wait
"""
