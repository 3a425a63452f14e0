"""One batch: its rows, features and labels."""
