"""Blobs for browsers."""
