"""Processes of our own."""
