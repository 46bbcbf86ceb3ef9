"""What an interrupt, or the handler of any signal, must not leave half done.

- awaiting  a lock for callers that may have to give up while they wait
- trying    a lock for callers that must not wait
"""
