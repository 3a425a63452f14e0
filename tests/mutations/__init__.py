"""Planted bugs, each of which a test must catch: a list by hand, and more drawn by seed."""
