"""Energies: parameters that score whole outputs."""
