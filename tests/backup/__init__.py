"""Of the backup."""
