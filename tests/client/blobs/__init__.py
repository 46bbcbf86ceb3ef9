"""The blob cache of the client."""
