"""Whole sites: examples/, a Zope, moving in and out."""
