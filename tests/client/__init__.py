"""The ZEO client."""
