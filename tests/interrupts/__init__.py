"""What an interrupt must not leave half done."""
