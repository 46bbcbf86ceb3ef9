"""The one protocol between our client and our server."""
