"""A batch: its rows, features and labels."""
