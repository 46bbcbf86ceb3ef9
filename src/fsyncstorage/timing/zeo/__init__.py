"""The command `fsync-time zeo`.

Who takes part is in `sites`.  What is timed: `writing`, `reading`, `beside`
(reading while another commits), and `light` (many clients that cost next to
nothing, and speak no more than `wire`).  `tables` shows it.
"""
