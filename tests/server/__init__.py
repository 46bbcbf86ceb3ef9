"""The ZEO server."""
