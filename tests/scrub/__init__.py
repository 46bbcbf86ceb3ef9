"""The scrub."""
