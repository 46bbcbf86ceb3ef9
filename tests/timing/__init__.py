"""The timing driver `fsync-time`.  No test asserts how fast anything was."""
