"""How a transaction is committed.

- turns     which transaction has which objects, and which one is next
- reserve   room on the disk for voted transactions
- blobs     blob files that are durable before their transaction counts
- pipeline  the states of commits: appended, durable, published
- policies  when a commit is acknowledged, and the settings of a storage
- asking    a transaction that asks for more than its storage gives
- sequencer appended, durable, published, told: in this order
- replica   what a storage needs from the log that its commits also go to
- interrupts a change is whole, or writing stops
- wakeable  how threads sleep until others wake them
"""
