"""The documents: what they tell to type works."""
