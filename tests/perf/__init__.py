"""The campaigns of perf/.  No test asserts how fast anything was."""
