"""The command `fsync-time files`.

Who takes part is in `sites`: programs that send, `app` and `nginx`.  What is
timed is in `work`: `loader` asks, and `memory` looks at the processes.
"""
