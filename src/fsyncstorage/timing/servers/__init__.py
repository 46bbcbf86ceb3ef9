"""Servers that a sample starts, and what their clients have to know."""
