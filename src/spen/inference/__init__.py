"""Inference: minimising a problem over a domain."""
