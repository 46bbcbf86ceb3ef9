"""The suites of ZODB and ZEO, and what is used of their inside."""
