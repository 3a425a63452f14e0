"""Solvers that return labellings of pairwise and small problems, or bounds of them."""
