"""The campaigns of perf/.  Nowhere is asserted how fast anything was."""
