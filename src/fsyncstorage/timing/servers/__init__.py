"""Servers that a sample starts, and how their clients find them."""
