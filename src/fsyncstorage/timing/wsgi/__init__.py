"""The command `fsync-time wsgi`.

The application is `app`; who serves it is in `servers`, who asks is `loader`.
"""
