"""What the bytes of a file mean."""
