"""Objectives: per-example training losses."""
